"""A picture of the viewer's page, as it stands in `docs/viewer.md`.

python benchmarks/perf/viewer_picture.py RUN docs/viewer.png [--dark]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from ttc.view import written


def main(run: str, picture: Path, *, dark: bool) -> None:
    """Draws the page of a run and takes its picture."""
    found = os.environ.get("TTC_CHROMIUM") or shutil.which("chromium")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "run.html"
        file.write_text(written(run), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"] if is_root else []
        )
        page = browser.new_page(
            viewport={"width": 1480, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page.goto(file.as_uri())
        page.wait_for_selector("#details .text span")
        page.evaluate("new Promise(requestAnimationFrame)")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a kept run, or the path of a journal")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    main(given.run, given.picture, dark=given.dark)
