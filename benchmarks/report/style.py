"""The style of a page: light and dark, for screens and paper, in colours that all can tell."""

from __future__ import annotations

__all__ = ["COLOURS", "STYLE"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#6b7280")
"""Of strategies, in their order; they begin anew after the last. Source: Wong 2011, Nature
Methods 8, page 441, whose yellow and black do not stand out on both grounds."""

_HEAT = ("#b2182b", "#d6604d", "#f4a582", "#fddbc7", "#e5e5e5", "#c6dbef", "#92c5de", "#4393c3",
         "#2166ac")  # fmt: skip


def _classes() -> str:
    parts = [f".c{place}{{stroke:{colour};fill:{colour}}}" for place, colour in enumerate(COLOURS)]
    parts += [f".h{place}{{fill:{colour}}}" for place, colour in enumerate(_HEAT)]
    return "".join(parts)


_RULES = """
:root{--ink:#1b2430;--soft:#5b6675;--rule:#e3e7ec;--ground:#fff;--card:#f7f9fb;--good:#00734f;
--bad:#b0341d;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--rule:#2c3643;
--ground:#12171e;--card:#1a212b;--good:#4cc9a0;--bad:#ff8a6b}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1160px;margin:0 auto;padding:36px 24px 72px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:19px;margin:44px 0 6px;padding-top:18px;border-top:1px solid var(--rule)}
h3{font-size:15px;margin:26px 0 6px}
p{margin:6px 0 12px}.soft{color:var(--soft)}
.warn{border-left:4px solid #e69f00;background:var(--card);padding:10px 14px;border-radius:4px}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:13.5px}
th{text-align:left;font-weight:600;color:var(--soft);padding:6px 12px 6px 0;
border-bottom:1px solid var(--rule);vertical-align:bottom}
td{padding:6px 12px 6px 0;border-bottom:1px solid var(--rule);vertical-align:top}
td.n,th.n{text-align:right}td.n{white-space:nowrap}td.s{overflow-wrap:break-word}td:first-child{min-width:120px}
tr.bound td{color:var(--soft);font-style:italic}
.better{color:var(--good);font-weight:600}.worse{color:var(--bad);font-weight:600}
svg{display:block;width:100%;height:auto;margin:4px 0 2px}
.chart{background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:14px 14px 8px;margin:10px 0 14px}
.grid{stroke:var(--rule);stroke-width:1}.axis,.mark{stroke:var(--soft);stroke-width:1}
.tick{fill:var(--soft);font-size:12px}.label{fill:var(--soft);font-size:12.5px;font-weight:600}
.line{fill:none;stroke-width:2.4;stroke-linejoin:round}.band{stroke:none;fill-opacity:.13}
.dot{stroke:var(--card);stroke-width:1.5}.whisker{stroke-width:2;stroke-opacity:.45}
.fill{stroke:none}.right{fill:#2166ac}.wrong{fill:#d6604d}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;margin:2px 0 6px;padding:0;list-style:none;
font-size:13px}.key svg{display:inline-block;width:12px;height:12px;margin:0 6px -1px 0}
details{margin:8px 0}summary{cursor:pointer;font-weight:600}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--rule);
border-radius:6px;padding:10px 12px;margin:6px 0;
font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:14px}
@media (max-width:720px){.pair{grid-template-columns:1fr}}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:8px 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
@media print{main{max-width:none}.chart{break-inside:avoid}}
"""
STYLE = _classes() + _RULES
"""The whole style. Colours come first, so that what is no area stays unfilled."""
