"""How smoothly the viewer's page draws: frame times in Chromium at 10,000 nodes.

    python benchmarks/perf/viewer.py [NODES]

It pans and zooms through the whole tree, a step for each frame, and reports the time between frames
and the script's own part of it. Without a graphics card Chromium draws in software, which is what
most of a frame then is.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.view.lab import big_view
from ttc.view.page import written_page

STEPS = """async (mode) => {
  const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
  const gaps = [];
  let last = performance.now();
  for (let i = 0; i < 90; i++) {
    const wheel = { bubbles: true, cancelable: true, ctrlKey: mode === 'zoom',
      clientX: box.left + box.width * 0.6, clientY: box.top + box.height * 0.5,
      deltaY: mode === 'zoom' ? (i < 45 ? -20 : 20) : (i < 45 ? 40 : -40) };
    canvas.dispatchEvent(new WheelEvent('wheel', wheel));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  return gaps.slice(5);
}"""


def main(num_nodes: int) -> dict[str, Any]:
    """Measures, and gives what was measured."""
    view = big_view(num_nodes)
    found = os.environ.get("TTC_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "big.html"
        file.write_text(written_page(view.document(), view.texts.all()), encoding="utf-8")
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        arguments = ["--no-sandbox"] if is_root else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        page = browser.new_page(viewport={"width": 1500, "height": 940})
        begun = time.perf_counter()
        page.goto(file.as_uri())
        page.evaluate("new Promise(requestAnimationFrame)")
        opened = time.perf_counter() - begun
        told = {mode: page.evaluate(STEPS, mode) for mode in ("pan", "zoom")}
        script = page.evaluate("ttcView.frames()")
        browser.close()
    return {
        "num_nodes": num_nodes,
        "file_mb": round(len(json.dumps(view.document())) / 1e6, 2),
        "open_s": round(opened, 2),
        "script_ms": quantiles(script),
        **{f"{mode}_frame_ms": quantiles(gaps) for mode, gaps in told.items()},
    }


def quantiles(times: list[float]) -> dict[str, float]:
    """The median and the 95th percentile."""
    ordered = sorted(times)
    at = ordered[int(0.95 * (len(ordered) - 1))]
    return {"median": round(statistics.median(ordered), 1), "p95": round(at, 1)}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000), indent=1))
