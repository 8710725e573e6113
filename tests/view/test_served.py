"""The pages of a running server in a browser: a request is seen while it runs, and afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.serve.lab import eventually, serving
from tests.view.lab import until
from tests.view.test_page import HOSTILE, click, selected
from ttc.manual_clock import ManualClock
from ttc.testing import FakeEngine

pytestmark = pytest.mark.browser

SPEC = "fake@sample(n=2, ahead=1) >> vote()"


def test_a_request_is_followed_from_the_list_to_its_end(open_page: Callable[..., Any]) -> None:
    """New calls come by themselves, a click shows one's text, and hostile text stays text."""
    clock = ManualClock()
    engine = FakeEngine(f"{HOSTILE} The answer is 5.", seconds_per_token=1.0, clock=clock)
    with serving(engine) as server, ThreadPoolExecutor() as pool:
        asked = [{"role": "user", "content": HOSTILE}]
        reply = pool.submit(server.post, model=SPEC, messages=asked)
        assert eventually(lambda: engine.calls == 1)
        (name,) = set(re.findall(r'href="([0-9a-f]+-0)"', server.http.get(_list(server)).text))
        page = open_page(f"{_list(server)}{name}")
        before = page.evaluate("ttcView.shown()")
        assert page.inner_text("#state") == "running"
        assert page.inner_text("[data-status=running] b") == "1"

        assert eventually(lambda: _later(clock, reply.done))
        until(page, f"ttcView.shown() > {before}")
        until(page, "document.querySelector('#state').innerText === 'finished'")

        page.goto(_list(server))
        page.click("a")
        until(page, "window.ttcView && ttcView.shown() > 0")
        click(page, "0.sample#1")
        page.wait_for_selector("#details .text")
        assert selected(page) == "0.sample#1"
        assert "<img src=x onerror=alert(1)>" in page.inner_text("#details .text")
        ground = page.locator("#details .text span").first.evaluate("each => each.style.background")
        assert re.fullmatch(r"rgba\(.*, 0\.1\)", ground)  # of a log probability of -0.5
        assert page.inner_text("#question").startswith("<img src=x")
        assert page.inner_text(".figures .answer dd").startswith("5")
        assert page.locator("img, iframe, object, #details script").count() == 0


def _later(clock: ManualClock, is_true: Callable[[], bool]) -> bool:
    """Whether something is true a second later."""
    clock.advance(1)
    return is_true()


def _list(server: Any) -> str:
    return f"{server.root}/ui/"
