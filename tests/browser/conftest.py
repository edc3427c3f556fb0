"""A real server with two real workers, and a real Chromium that is signed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from tools.browser import MISSING, find, launch

from rota.api.static_pages import BUILT
from tests.process.cell import Cell, until

WORKERS = ("left", "right")
PATIENCE_MS = 20_000
"""Shared cores stall for seconds; only a test that fails waits this long."""
SIZE = {"width": 1280, "height": 860}
PAGE_LINE = re.compile(r"open     (\S+)\s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass(frozen=True)
class Site:
    url: str
    token: str
    sign_in: str
    """The printed link, good once."""
    http: httpx2.Client

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def shell(self, script: str, name: str = "shell", **more: Any) -> str:
        task = {"kind": "command", "argv": ["/bin/sh", "-c", script]}
        needs = {"requirements": {"cpu": 0.1}}
        return str(
            self.ask("POST", "/jobs", {"name": name, "task": task, **needs, **more})["job_id"]
        )

    def status(self, job_id: str) -> str:
        return str(self.ask("GET", f"/jobs/{job_id}")["status"])

    def until_status(self, job_id: str, *wanted: str) -> None:
        until(lambda: self.status(job_id) in wanted, f"{job_id} to be {wanted}")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if find() is None:
        pytest.fail(MISSING)
    if not (BUILT / "index.html").is_file():
        pytest.fail("the dashboard is not built: run `make dashboard`")
    with Cell(tmp_path_factory.mktemp("site"), lease_ttl="5s") as cell:
        server = cell.up()
        for name in WORKERS:
            cell.worker(name, "--cpu", "4", "--memory", "4GiB")
        # The line after the one that says that it is up may be a moment late.
        link = until(lambda: PAGE_LINE.search(server.text()), "the link to sign in")[1]
        made = Site(cell.url, cell.token, link, cell.http())
        online = {"online": len(WORKERS)}.items()
        until(lambda: online <= made.ask("GET", "/stats")["workers"].items(), "the workers")
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        started = launch(driver)
        yield started
        started.close()


@dataclass
class Watch:
    wrong: list[str] = field(default_factory=list)

    def on(self, page: Page, url: str) -> None:
        """Collects console messages, errors and failed requests of a page."""

        def on_console(message: ConsoleMessage) -> None:
            if message.type == "error" and "status of" not in message.text:
                self.wrong.append(f"console: {message.text}")

        def asked(request: Request) -> None:
            if not request.url.startswith((url, "data:", "blob:")):
                self.wrong.append(f"asked elsewhere: {request.url}")

        page.on("console", on_console)
        page.on("request", asked)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))


Open = Callable[..., Page]


@pytest.fixture
def open_page(site: Site, browser: Browser) -> Iterator[Open]:
    """Opens pages that are signed in; at the end of a test none may have an error."""
    contexts, watch = [], Watch()

    def opened(path: str = "/", *, token: str | None = site.token, **options: Any) -> Page:
        context = browser.new_context(base_url=site.url, **{"viewport": SIZE, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        if token is not None:
            headers = {"Authorization": f"Bearer {token}"}
            assert context.request.post("/session", headers=headers).ok
        page = context.new_page()
        watch.on(page, site.url)
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert watch.wrong == []
