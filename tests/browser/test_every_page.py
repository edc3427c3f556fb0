"""Every page: reload, accessibility, phone size, themes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Open, Site
from tests.chaos.proxy import Mode, Proxy
from tests.cli.shown_commands import taken
from tests.process.cell import until

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
PATHS = (
    "/",
    "/ui/jobs",
    "/ui/dead-letters",
    "/ui/workers",
    "/ui/timeline",
    "/ui/queues",
    "/ui/schedules",
    "/ui/triggers",
    "/ui/alerts",
    "/ui/alerts/disk_low",
    "/ui/simulate",
    "/ui/settings",
)
GRAVE = ("serious", "critical")
PHONE = {"width": 390, "height": 844}
FIRES_S = 40
"""The leader looks every ten seconds; shared cores stall."""


@pytest.fixture(scope="module")
def job_id(site: Site) -> str:
    """Creates a failed job, its queue, a schedule and a trigger, so that every page has data."""
    job = {"name": "paged", "task": {"kind": "noop"}}
    site.ask("POST", "/schedules", {"name": "paged", "cron": "0 3 * * *", "job": job})
    site.ask("POST", "/triggers", {"name": "paged", "event": "paged.*", "job": job})
    made = site.shell("echo printed; exit 3", name="paged", labels={"team": "x"})
    site.until_status(made, "failed")
    site.shell("true", name="paged-array", count=3)
    site.shell("true", name="paged-wait", requirements={"cpu": 512}, finish_by="2h")
    return made


def settled(page: Page) -> None:
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def every_path(site: Site, job_id: str) -> list[str]:
    schedule = site.ask("GET", "/schedules?name=paged")["items"][0]["schedule_id"]
    trigger = site.ask("GET", "/triggers?name=paged")["items"][0]["trigger_id"]
    tabs = [f"/ui/jobs/{job_id}?tab={tab}" for tab in ("log", "executions", "graph", "details")]
    more = [
        site.ask("GET", f"/jobs?name={name}")["items"][-1] for name in ("paged-array", "paged-wait")
    ]
    jobs = [f"/ui/jobs/{one['job_id']}" for one in more]
    return [*PATHS, *tabs, *jobs, f"/ui/schedules/{schedule}", f"/ui/triggers/{trigger}"]


def dialogs(site: Site, job_id: str) -> list[tuple[str, str]]:
    """Pages, and the button that opens a dialog."""
    schedule = site.ask("GET", "/schedules?name=paged")["items"][0]["schedule_id"]
    return [
        ("/ui/schedules", "New schedule"),
        (f"/ui/schedules/{schedule}", "Edit"),
        (f"/ui/schedules/{schedule}", "Backfill"),
        ("/ui/triggers", "Test an event"),
        ("/ui/triggers", "New trigger"),
        ("/ui/alerts", "New rule"),
        ("/ui/alerts", "New channel"),
        ("/ui/alerts/disk_low", "Edit"),
        ("/ui/alerts/disk_low", "Silence"),
        ("/ui/settings", "New token"),
        ("/ui/queues", "New tenant"),
        ("/ui/queues", "Use a preset"),
        ("/ui/jobs?name=paged", "Retry"),
        ("/ui/jobs?name=paged", "Priority"),
        (f"/ui/jobs/{job_id}", "Delete"),
    ]


def grave_findings(page: Page) -> list[str]:
    """Serious accessibility findings, each as a line."""
    found: Any = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{page.url} {one['id']}: {one['help']}: {json.dumps(one['nodes'][0]['html'])[:300]} "
        f"{one['nodes'][0].get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in GRAVE
    ]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_page_has_serious_findings_of_axe(
    site: Site, open_page: Open, job_id: str, theme: str
) -> None:
    page = open_page("/", color_scheme=theme)
    script, found = AXE.read_text(encoding="utf-8"), []
    for path in every_path(site, job_id):
        page.goto(path)
        settled(page)
        page.evaluate(script)
        found += grave_findings(page)
    assert not found, "\n".join(["", *found])


@pytest.mark.slow
def test_dialogs_and_the_sign_in_page_have_no_serious_findings_of_axe(
    site: Site, open_page: Open, job_id: str
) -> None:
    script, found = AXE.read_text(encoding="utf-8"), []
    for path, button in dialogs(site, job_id):
        page = open_page(path)
        settled(page)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.evaluate(script)
        found += grave_findings(page)
    page = open_page("/", token=None)
    expect(page.get_by_label("Token")).to_be_visible()
    page.evaluate(script)
    found += grave_findings(page)
    assert not found, "\n".join(["", *found])


def shown_commands(page: Page) -> list[str]:
    """Every `rota` command on the page, collapsed or not."""
    lines = "() => [...document.querySelectorAll('.command pre')].map((one) => one.textContent)"
    return [line for line in page.evaluate(lines) if line.startswith("rota ")]


def commands_on(page: Page) -> list[str]:
    found = shown_commands(page)
    for button in page.get_by_role("button", name=re.compile("show the command$")).all():
        button.click()
        found += shown_commands(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    return found


def test_every_command_shown_on_a_page_is_valid(site: Site, open_page: Open, job_id: str) -> None:
    page = open_page("/")
    found: list[str] = []
    for path in every_path(site, job_id):
        page.goto(path)
        settled(page)
        found += commands_on(page)
    for path, button in dialogs(site, job_id):
        page.goto(path)
        settled(page)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        found += shown_commands(page)
    assert len(found) > 20
    refused = [error for line in found if (error := taken(line)) is not None]
    assert not refused, "\n".join(["", *refused])


def test_every_page_fits_a_phone(site: Site, open_page: Open, job_id: str) -> None:
    page = open_page("/", viewport=PHONE)
    wide = []
    for path in every_path(site, job_id):
        page.goto(path)
        settled(page)
        width = page.evaluate("() => document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide.append(f"{path} is {width} wide")
    assert not wide, "\n".join(["", *wide])


@pytest.fixture
def long_name(site: Site) -> Iterator[str]:
    """A long name for a rule, a job, its queue, a schedule, a trigger and a channel."""
    name = "reconciliation_of_all_customer_accounts_in_europe_and_elsewhere"
    job = {"name": name, "queue": name, "task": {"kind": "noop"}}
    ways = [
        ("schedule", site.ask("POST", "/schedules", {"name": name, "cron": "@daily", "job": job})),
        ("trigger", site.ask("POST", "/triggers", {"name": name, "event": name, "job": job})),
    ]
    paths = [f"/{kind}s/{made[f'{kind}_id']}" for kind, made in ways]
    paths += [f"/alert-channels/{name}", f"/alerts/{name}"]
    site.ask("PUT", f"/alert-channels/{name}", {"url": "http://127.0.0.1:9/nobody"})
    site.ask("PUT", f"/alerts/{name}", {"condition": "disk_low", "threshold": 1e17})
    failed = site.shell("exit 3", name=name, queue=name)
    site.until_status(failed, "failed")
    yield name
    for path in [*paths, f"/jobs/{failed}"]:
        site.ask("DELETE", path)


@pytest.mark.slow
def test_long_names_fit_a_phone(site: Site, open_page: Open, long_name: str) -> None:
    page = open_page("/", viewport=PHONE)
    what = f"a notice of {long_name}"
    until(lambda: long_name in str(site.ask("GET", "/alert-notices")), what, FIRES_S)
    wide = []
    for path in (*PATHS, f"/ui/alerts/{long_name}"):
        page.goto(path)
        settled(page)
        width = page.evaluate("() => document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide.append(f"{path} is {width} wide")
        for label in ("Rules", "Notifications") if path.startswith("/ui/alerts") else ():
            for table in page.get_by_role("table", name=label).all():
                across = table.evaluate("(table) => table.parentElement.scrollWidth")
                if across > PHONE["width"]:
                    wide.append(f"{label} on {path} has to be moved sideways: {across}")
    assert not wide, "\n".join(["", *wide])


@pytest.mark.slow
def test_every_page_can_be_reloaded_where_it_is(site: Site, open_page: Open, job_id: str) -> None:
    page = open_page("/")
    for path in every_path(site, job_id):
        page.goto(path)
        settled(page)
        before = page.locator("main h1").inner_text()
        page.reload()
        settled(page)
        assert page.locator("main h1").inner_text() == before, path


def test_an_unknown_page_and_an_unknown_job_show_a_message(open_page: Open) -> None:
    page = open_page("/ui/nonsense")
    expect(page.get_by_text("Page not found.")).to_be_visible()
    page.goto("/ui/jobs/019a85c2-0000-7000-8000-000000000000")
    expect(page.get_by_role("alert")).to_contain_text("Not found.")


def test_the_chosen_theme_is_remembered(open_page: Open) -> None:
    page = open_page("/", color_scheme="light")
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(background) == dark


def test_a_page_catches_up_after_its_connection_was_cut(
    site: Site, open_page: Open, browser: Browser
) -> None:
    proxy = Proxy(int(site.url.rpartition(":")[2]))
    try:
        context = browser.new_context(base_url=f"http://127.0.0.1:{proxy.port}")
        headers = {"Authorization": f"Bearer {site.token}"}
        assert context.request.post("/session", headers=headers).ok
        page = context.new_page()
        page.goto("/ui/jobs?name=slept")
        expect(page.get_by_text("No matching jobs.")).to_be_visible()
        expect(page.locator(".live")).to_contain_text("live")
        proxy.become(Mode.CUT)
        expect(page.locator(".live")).to_contain_text("reconnecting")
        site.shell("true", name="slept")
        proxy.become(Mode.PASS)
        expect(page.get_by_role("link", name="slept")).to_be_visible()
        expect(page.locator(".live")).to_contain_text("● live")
        context.close()
    finally:
        proxy.close()
