"""Takes the pictures of the dashboard, with a real server, workers, jobs and Chromium.

`make screenshots` writes all of them to `.pictures/`, light and dark, and copies the few that the
documents show to `docs/pictures/`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tools.browser import launch
from tools.demo import Demo

from tests.process.cell import Cell, until

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "pictures"
PAGES = {
    "overview": "/",
    "jobs": "/ui/jobs",
    "workers": "/ui/workers",
    "timeline": "/ui/timeline?span=5+min",
    "queues": "/ui/queues",
    "schedules": "/ui/schedules",
    "triggers": "/ui/triggers",
    "alerts": "/ui/alerts",
    "alert": "/ui/alerts/dead_letters",
    "dead-letters": "/ui/dead-letters",
    "simulate": "/ui/simulate",
    "settings": "/ui/settings",
}
SHOWN = (
    "overview-light",
    "overview-dark",
    "job-dark",
    "graph-light",
    "timeline-light",
    "simulate-dark",
)
"""Those that documents show; the rest is for looking at."""
WORKERS = (("edge-1", "4", "8GiB", "0"), ("edge-2", "4", "8GiB", "0"), ("gpu-1", "8", "64GiB", "2"))
BUSY_S = 120
"""Work goes on while the pictures are taken: about as long as that takes."""
SIMULATED_MS = 40_000
"""As long as a server gives a simulation, and some more."""
SIZE = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}


@contextmanager
def filled_server(folder: Path, seconds: float) -> Iterator[tuple[str, str, Demo]]:
    """Starts a server with three workers and sample jobs; yields (address, token, demo)."""
    with Cell(folder, lease_ttl="15s") as cell:
        cell.up()
        for name, cpu, memory, gpu in WORKERS:
            sizes = ("--cpu", cpu, "--memory", memory, "--gpu", gpu, "--storage", "50GiB")
            cell.worker(name, *sizes)
        demo = Demo(cell.url, cell.token)
        until(lambda: demo.ask("GET", "/stats")["workers"]["online"] == len(WORKERS), "workers")
        demo.seed()
        demo.trickle(seconds)
        yield cell.url, cell.token, demo


def open_page(browser: Browser, url: str, token: str, theme: str, size: dict[str, int]) -> Page:
    """Opens a page that is signed in, and prints errors of its code."""
    context = browser.new_context(viewport=size, color_scheme=theme, base_url=url)  # type: ignore[arg-type]
    headers = {"Authorization": f"Bearer {token}"}
    assert context.request.post("/session", headers=headers).ok
    page = context.new_page()
    page.on("pageerror", lambda error: print(f"page error: {error}", file=sys.stderr))
    page.on("console", _print_error)
    return page


def _print_error(message: ConsoleMessage) -> None:
    if message.type == "error":
        print(message.text, file=sys.stderr)


def take_all(browser: Browser, url: str, token: str, demo: Demo, target: Path) -> None:
    """Takes every page in light and dark, and some at phone size."""
    running = demo.ask("GET", "/jobs?name=rebuild-index")["items"][0]["job_id"]
    member = demo.ask("GET", "/jobs?name=load-warehouse")["items"][0]["job_id"]
    waiting = demo.ask("GET", "/jobs?name=evaluate-model")["items"][0]["job_id"]
    tried = demo.ask("GET", "/jobs?name=render-invoice")["items"][0]["job_id"]
    array = demo.ask("GET", "/jobs?name=score-segment")["items"][-1]["job_id"]
    worker = demo.ask("GET", "/workers")["items"][0]["worker_id"]
    schedule = demo.ask("GET", "/schedules?name=invoices")["items"][0]["schedule_id"]
    pages = {
        **PAGES,
        "job": f"/ui/jobs/{running}",
        "graph": f"/ui/jobs/{member}?tab=graph",
        "why": f"/ui/jobs/{waiting}",
        "details": f"/ui/jobs/{tried}?tab=details",
        "tries": f"/ui/jobs/{tried}?tab=executions",
        "array": f"/ui/jobs/{array}",
        "worker": f"/ui/workers/{worker}",
        "schedule": f"/ui/schedules/{schedule}",
    }
    for theme in ("light", "dark"):
        page = open_page(browser, url, token, theme, SIZE)
        for name, path in pages.items():
            _shoot(page, path, target / f"{name}-{theme}.png")
        page.context.close()
    phone = open_page(browser, url, token, "light", PHONE)
    for name, path in pages.items():
        _shoot(phone, path, target / f"phone-{name}.png")


def _shoot(page: Page, path: str, target: Path) -> None:
    page.goto(path, wait_until="load")
    page.wait_for_selector("main h1, main .page-head")
    if path == PAGES["simulate"]:
        page.get_by_role("button", name="Simulate", exact=True).click()
        expect(page.get_by_role("table", name="Policies")).to_be_visible(timeout=SIMULATED_MS)
    expect(page.locator(".loading")).to_have_count(0)
    # Charts and canvases draw in the frames after their data has come.
    page.wait_for_timeout(900)
    page.screenshot(path=target)


def main(arguments: Sequence[str]) -> int:
    """Takes all pictures, after some seconds of load, so that charts have data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / ".pictures")
    parser.add_argument("--busy", type=float, default=90, help="seconds of work before")
    chosen = parser.parse_args(arguments)
    chosen.target.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="rota-pictures-"))
    try:
        with filled_server(folder, chosen.busy) as (url, token, demo), sync_playwright() as driver:
            browser = launch(driver)
            work = threading.Thread(target=demo.trickle, args=(BUSY_S,))
            work.start()
            take_all(browser, url, token, Demo(url, token), chosen.target)
            demo.stopping.set()
            work.join()
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in SHOWN:
        shutil.copy(chosen.target / f"{name}.png", KEPT / f"{name}.png")
    print(f"pictures are in {chosen.target}, after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
