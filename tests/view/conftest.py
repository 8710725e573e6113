"""A browser for the pages, where there is one."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.view.lab import until
from ttc.view.local import application

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, once for a module."""
    found = os.environ.get("TTC_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium: install Debian's package chromium, or set TTC_CHROMIUM")
    from playwright.sync_api import sync_playwright

    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if is_root else []
        chromium = playwright.chromium.launch(executable_path=found, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a page; afterwards nothing may have gone wrong in it, nor been asked of others."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    context.set_default_timeout(20_000)
    faults: list[str] = []
    asked: list[str] = []
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("console", lambda told: faults.append(told.text))
    context.on("request", lambda request: asked.append(request.url))
    context.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
    context.add_init_script(
        "addEventListener('securitypolicyviolation',"
        "(event) => console.error(`violated ${event.violatedDirective} ${event.blockedURI}`))"
    )

    def open_it(address: str | Path) -> Any:
        page = context.new_page()
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        until(page, "window.ttcView && ttcView.shown() > 0")
        return page

    yield open_it
    context.close()
    assert faults == []
    assert [url for url in asked if not url.startswith(("file:", "http://127.0.0.1:"))] == []


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a journal on loopback; gives the address of its page."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(journal: Path) -> str:
        made = application(journal)
        config = uvicorn.Config(made.app, port=0, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{made.path}"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)
