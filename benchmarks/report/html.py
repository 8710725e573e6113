"""The page of a study: one file without a script, that asks nothing of any other machine.

Whatever a model wrote stands in it as text. The policy in its head forbids everything but the
style, which is told by its hash, so that no text could become anything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from statistics import fmean

from ttc.benchmarks.harness.measures import BIN, RESOURCES, CellMeasures
from ttc.benchmarks.harness.selection import Selection
from ttc.benchmarks.report import svg
from ttc.benchmarks.report.compare import Disagreement, Side
from ttc.benchmarks.report.study import Study
from ttc.benchmarks.report.style import COLOURS, STYLE
from ttc.benchmarks.report.tables import (
    EQUAL_HEADINGS,
    HEADINGS,
    RIGHT,
    SELECTION_HEADINGS,
    SURE_HEADINGS,
    VERDICT_RIGHT,
    cell_row,
    equal_table,
    percent,
    selection_row,
    spend,
    sure_row,
    used_up,
    verdict_table,
)

__all__ = ["page"]

_TITLES = {
    "tokens": "mean tokens of a problem",
    "flops": "mean FLOPs of a problem",
    "seconds": "mean seconds of a problem, with others in flight",
    "cost_usd": "mean dollars of a problem",
}


def page(study: Study, disagreements: Sequence[Disagreement] = ()) -> str:
    """The page, as HTML.

    Args:
        study: what is told.
        disagreements: problems on which two strategies differ, with what each wrote.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = ", ".join(task.name for task in study.config.tasks)
    parts = [_head(study, title)]
    for task, model, cells in study.groups():
        parts.append(_group(study, task, model, cells))
    parts += [_verdicts(study), _equal(study), _differing(disagreements), _card(study)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} - ttc</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(study: Study, title: str) -> str:
    config = study.config
    told = (
        f"{len(study.cells)} cells, {config.repeats} "
        f"{'run' if config.repeats == 1 else 'runs'} of each problem, seed {config.seed}"
    )
    source = f"the pool {config.pool}" if config.pool else ", ".join(config.models)
    warning = ""
    if study.num_missing:
        warning = (
            f'<p class="warn">{study.num_missing:,} results are still missing: what stands here '
            "will change. The same command goes on.</p>"
        )
    return f'<h1>{escape(title)}</h1><p class="soft">{escape(source)} · {told}</p>{warning}'


def _group(study: Study, task: str, model: str, cells: list[CellMeasures]) -> str:
    facts = study.task(task)
    bounds = [cell for cell in cells if cell.oracle]
    results = [cell for cell in cells if not cell.oracle]
    arms = [arm.name for arm in study.config.arms]
    told = f"{facts.num_problems:,} problems · {facts.source} · graded by {facts.grader}"
    if facts.num_publicly_tested:
        told += f" · {facts.num_publicly_tested} of them show tests of their own"
    parts = [f"<h2>{escape(task)}</h2>", f'<p class="soft">{escape(told)} · {escape(model)}</p>']
    if results:
        parts += [_curves(results, arms, resource) for resource in RESOURCES]
    parts.append(_table(HEADINGS, [cell_row(cell) for cell in results], RIGHT))
    if bounds:
        parts.append("<h3>Upper bounds: chosen by the right answers, and no results</h3>")
        parts.append(_table(HEADINGS, [cell_row(cell) for cell in bounds], RIGHT, kind="bound"))
    parts += [f'<p class="warn">{escape(told)}</p>' for told in used_up(cells)]
    parts.append(_heat(cells))
    parts.append(_roles(cells))
    parts.append(_lengths(cells))
    parts.append(_calibration(cells, arms))
    parts += [_selection(f) for f in study.selections if (f.task, f.model) == (task, model)]
    return "".join(parts)


def _curves(cells: list[CellMeasures], arms: list[str], resource: str) -> str:
    known = [cell for cell in cells if cell.spends.get(resource)]
    if not known:
        return ""
    found = []
    for arm in arms:
        mine = sorted((c for c in known if c.cell.arm == arm), key=lambda c: c.spend(resource) or 0)
        if mine:
            told = [
                svg.Point(
                    cell.spend(resource) or 0.0,
                    cell.accuracy,
                    cell.interval.low,
                    cell.interval.high,
                    f"{arm}, {cell.cell.budget}: {percent(cell.accuracy)} at "
                    f"{spend(cell.spend(resource), resource)}",
                )
                for cell in mine
            ]
            found.append(svg.Line(arm, told, arms.index(arm) % len(COLOURS)))
    key = _key([(line.name, line.colour) for line in found])
    chart = svg.lines(found, x=_TITLES[resource], y="accuracy")
    drawn = f'<div class="chart">{chart}{key}</div>'
    if resource == "tokens":
        return drawn
    return f"<details><summary>Against {escape(_TITLES[resource])}</summary>{drawn}</details>"


def _key(names: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 12 12"><circle class="dot c{colour}" cx="6" cy="6" r="5"/></svg>'
        f"{escape(name)}</li>"
        for name, colour in names
    )
    return f'<ul class="key">{items}</ul>'


def _heat(cells: list[CellMeasures]) -> str:
    problems = sorted({problem for cell in cells for problem in cell.problems})
    known = [(_title(cell), dict(zip(cell.problems, cell.values, strict=True))) for cell in cells]
    ease = {p: -fmean(values.get(p, 0.0) for _, values in known) for p in problems}
    order = sorted(problems, key=lambda problem: (ease[problem], problem))
    rows = [(name, [values.get(problem) for problem in order]) for name, values in known]
    return (
        "<h3>Problem by problem</h3>"
        f'<div class="chart">{svg.heat_map(rows, order)}</div>'
        '<p class="soft">A column for each problem, the easiest first. Blue is right, red is '
        "wrong, what lies between is right in some of the runs.</p>"
    )


def _roles(cells: list[CellMeasures]) -> str:
    roles = sorted({role for cell in cells for role in cell.roles})
    if not roles:
        return ""
    colours = {role: place % len(COLOURS) for place, role in enumerate(roles)}
    found = [svg.Bar(_title(cell), cell.roles) for cell in cells]
    chart = svg.bars(found, colours, unit="tokens of a problem")
    key = _key(list(colours.items()))
    return f'<h3>Budget by role</h3><div class="chart">{chart}{key}</div>'


def _lengths(cells: list[CellMeasures]) -> str:
    parts = []
    for cell in cells:
        if cell.lengths:
            chart = svg.histogram(cell.lengths, BIN, x="tokens of a candidate")
            right, wrong = cell.mean_length_right, cell.mean_length_wrong
            told = f"cut by their length: {percent(cell.truncation_rate)}"
            if right is not None and wrong is not None:
                told += f" · right ones {right:.0f} tokens, wrong ones {wrong:.0f}, in the mean"
            parts.append(
                f"<details><summary>{escape(_title(cell))}</summary>"
                f'<div class="chart">{chart}</div><p class="soft">{told}. Blue is right, red is '
                "wrong.</p></details>"
            )
    return f"<h3>Lengths of candidates</h3>{''.join(parts)}" if parts else ""


def _calibration(cells: list[CellMeasures], arms: list[str]) -> str:
    known = [cell for cell in cells if cell.calibration is not None]
    if not known:
        return ""
    found, rows = [], []
    for place, cell in enumerate(known):
        sure = cell.calibration
        assert sure is not None
        points = [
            svg.Point(coverage, accuracy, accuracy, accuracy, f"{coverage:.0%}: {accuracy:.1%}")
            for coverage, accuracy in sure.curve
        ]
        found.append(svg.Line(_title(cell), points, place % len(COLOURS)))
        rows.append(sure_row(cell))
    chart = svg.lines(found, x="share of problems answered, the surest first", y="accuracy",
                      is_log=False)  # fmt: skip
    key = _key([(line.name, line.colour) for line in found])
    return f'<h3>Confidence</h3><div class="chart">{chart}{key}</div>' + _table(
        SURE_HEADINGS, rows, ",".join(SURE_HEADINGS[1:])
    )


def _selection(found: Selection) -> str:
    names = list(dict.fromkeys(point.selector for point in found.results))
    drawn = [
        svg.Line(
            name,
            [
                svg.Point(p.k, p.value, *p.interval, f"{name}, k={p.k}: {percent(p.value)}")
                for p in found.results
                if p.selector == name
            ],
            place % len(COLOURS),
        )
        for place, name in enumerate(names)
    ]
    told = (
        f"{found.num_samples} samples of each of {found.num_problems:,} problems, by {found.source}"
    )
    parts = ["<h3>Chosen among k samples</h3>", f'<p class="soft">{escape(told)}.</p>']
    if drawn:
        chart = svg.lines(drawn, x="samples of a problem", y="accuracy")
        key = _key([(line.name, line.colour) for line in drawn])
        parts.append(f'<div class="chart">{chart}{key}</div>')
    right = ",".join(SELECTION_HEADINGS[1:])
    for kind, points in (("", found.results), ("bound", found.bounds)):
        if points:
            rows = [selection_row(point) for point in points]
            parts.append(_table(SELECTION_HEADINGS, rows, right, kind=kind))
    parts.append(
        '<p class="soft">Means over all subsets of k, with intervals of a bootstrap over problems; '
        "a weighted vote is a mean over 1,000 subsets. Regret is what a perfect choice among the "
        "same samples would gain. What stands apart is that choice: a bound, and no result.</p>"
    )
    return "".join(parts)


def _verdicts(study: Study) -> str:
    if not study.verdicts:
        return (
            "<h2>Verdicts</h2><p>No comparison was named before the run, so nothing here has a "
            "verdict.</p>"
        )
    parts = ["<h2>Verdicts</h2>", _table(*verdict_table(study), VERDICT_RIGHT)]
    parts.append(
        '<p class="soft">Points of accuracy, paired by problem, with percentile intervals of a '
        "bootstrap over problems. P values are adjusted by Holm's method for the comparisons of a "
        "task, all of which were written down before the run. Detectable is the difference that so "
        "many problems would have shown with a power of 80 %. Everything else on this page is "
        "described, without a verdict.</p>"
    )
    return "".join(parts)


def _equal(study: Study) -> str:
    if not study.at_equal_spend:
        return ""
    return (
        "<h2>At equal spend</h2>"
        + _table(*equal_table(study), ",".join(EQUAL_HEADINGS[2:]))
        + '<p class="soft">At the most that both reach. A strategy that has no result at just this '
        "spend is held at both budgets beside it, and differences and intervals reach over both; "
        "nothing is read off a line between budgets, or beyond them.</p>"
    )


def _differing(found: Sequence[Disagreement]) -> str:
    if not found:
        return ""
    parts = ["<h2>Where they differ</h2>"]
    for one in found:
        first, second = one.first, one.second
        head = f"{one.task}, {one.problem}: {first.name} {first.mark}, {second.name} {second.mark}"
        sides = "".join(
            f"<div><h3>{escape(side.name)}: {escape(side.answer or 'no answer')} "
            f'<span class="{side.kind}">{side.mark}</span></h3>'
            f"<pre>{escape(side.text or '')}</pre>{_link(side)}</div>"
            for side in (first, second)
        )
        parts.append(
            f"<details><summary>{escape(head)}</summary><pre>{escape(one.question)}</pre>"
            f'<div class="pair">{sides}</div></details>'
        )
    return "".join(parts)


def _link(side: Side) -> str:
    if side.page is None:
        return ""
    return f'<p><a href="{escape(side.page)}">the whole run of {escape(side.name)}</a></p>'


def _card(study: Study) -> str:
    config, card = study.config, study.card
    told = [("strategies", "")]
    told += [(arm.name, arm.strategy) for arm in config.arms]
    told += [(f"digest of {task.name}", task.digest) for task in config.tasks]
    for name, model in card.get("models", {}).items():
        for role, engine in model["engines"].items():
            told.append((f"{name}, {role}", f"{engine['kind']}; {engine['numerics']}"))
            told.append((f"{name}, {role}: drafts", engine.get("speculation", "")))
    for name in ("machine", "versions", "run"):
        facts = card.get(name, {})
        told.append((name, ", ".join(f"{key} {value}" for key, value in facts.items())))
    told.append(("commit", str(card.get("commit"))))
    asking = json.dumps(dict(config.asking), ensure_ascii=False)
    told.append(("asked by", asking))
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in told if v)
    prompts = "".join(
        f"<details><summary>First prompt of {escape(task)}, as {escape(name)} reads it</summary>"
        f"<pre>{escape(prompt or '')}</pre></details>"
        for name, model in card.get("models", {}).items()
        for task, prompt in model["prompts"].items()
    )
    return f"<h2>Card</h2><dl>{rows}</dl>{prompts}"


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: str, *, kind: str = ""
) -> str:
    numbers = set(right.split(","))
    head = "".join(
        f'<th class="{"n" if heading in numbers else "s"}">{escape(heading)}</th>'
        for heading in headings
    )
    body = "".join(
        f'<tr class="{kind}">'
        + "".join(
            f'<td class="{"n" if heading in numbers else "s"}'
            f'{" " + cell if cell in ("better", "worse") else ""}">{escape(cell)}</td>'
            for heading, cell in zip(headings, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _title(cell: CellMeasures) -> str:
    return f"{cell.cell.arm} @ {cell.cell.budget}"
