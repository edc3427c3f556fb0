"""Pages about everything but single jobs: the main action of each."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, Site
from tests.process.cell import until


def test_the_printed_link_signs_in_once_and_signing_out_ends_it(
    site: Site, open_page: Open
) -> None:
    page = open_page(site.sign_in.removeprefix(site.url), token=None)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert "token" not in page.url
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/ui/queues")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(site.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()


def test_the_overview_changes_by_itself(site: Site, open_page: Open) -> None:
    page = open_page("/")
    running = page.locator(".card", has_text="Running").locator("dd")
    expect(page.locator(".live")).to_contain_text("live")
    before = int(running.inner_text())
    jobs = [site.shell("sleep 600", name="sleeper") for _ in range(3)]
    expect(running).to_have_text(str(before + 3))
    for job in jobs:
        site.ask("PUT", f"/jobs/{job}/cancel")
    expect(running).to_have_text(str(before))


def test_the_overview_links_to_failed_jobs(site: Site, open_page: Open) -> None:
    job_id = site.shell("exit 9", name="troubled")
    site.until_status(job_id, "failed")
    page = open_page("/")
    page.get_by_role("link", name=re.compile("troubled")).click()
    expect(page).to_have_url(re.compile(r"/ui/dead-letters\?group="))
    expect(page.get_by_role("region", name="troubled: exit code 9")).to_be_visible()


def test_a_few_dead_letters_are_retried_first_and_then_all(site: Site, open_page: Open) -> None:
    gate = "test -e /nowhere"
    ids = [site.shell(gate, name="letters") for _ in range(8)]
    other = site.shell("exit 4", name="letters")
    for one in (*ids, other):
        site.until_status(one, "failed")
    page = open_page("/ui/dead-letters")
    group = page.get_by_role("region", name="letters: exit code 1")
    expect(group.locator(".count")).to_contain_text("8")
    group.get_by_role("button", name="Retry 3 first").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_test_id("bulk-count")).to_have_text("3")
    dialog.get_by_role("button", name="Retry jobs").click()
    expect(page.get_by_text("3 jobs started over")).to_be_visible()
    until(lambda: all(site.status(one) == "failed" for one in ids), "them to fail again")
    expect(group.get_by_text("Retried first").locator(".status", has_text="failed")).to_have_count(
        3
    )
    group.get_by_role("button", name="Retry all").click()
    expect(dialog.get_by_test_id("bulk-count")).to_have_text("8")
    expect(dialog.get_by_text("rota bulk retry --status failed --name letters")).to_be_visible()
    dialog.get_by_role("button", name="Retry jobs").click()
    expect(page.get_by_text("8 jobs started over")).to_be_visible()
    fences = [site.ask("GET", f"/jobs/{one}")["fence"] for one in (*ids, other)]
    assert fences[-1] == 1
    assert min(fences[:-1]) >= 1
    until(lambda: all(site.ask("GET", f"/jobs/{one}")["fence"] >= 2 for one in ids), "second runs")


def test_a_group_of_dead_letters_shows_the_end_of_its_newest_log(
    site: Site, open_page: Open
) -> None:
    job_id = site.shell("printf '\\033[31mno such table\\033[0m\\n'; exit 7", name="wordy")
    site.until_status(job_id, "failed")
    page = open_page("/ui/dead-letters")
    group = page.get_by_role("region", name="wordy: exit code 7")
    group.get_by_text("the end of its log").click()
    expect(group.locator(".last-words")).to_have_text(re.compile("^no such table"))


def test_the_workers_page_shows_running_jobs_and_lost_executions(
    site: Site, open_page: Open
) -> None:
    job_id = site.shell("sleep 600", name="carried")
    site.until_status(job_id, "running")
    body = {"name": "gone-soon", "resources": {"cpu": 1}, "capabilities": ["gone"]}
    worker = site.ask("POST", "/workers/register", body)["worker_id"]
    needs = {"cpu": 0.1, "capabilities": ["gone"]}
    lost = site.shell("true", name="left-behind", semantics="at_most_once", requirements=needs)
    asked = {"max": 1, "wait": "1s"}
    until(
        lambda: site.ask("POST", f"/workers/{worker}/lease", asked)["executions"], "it to be taken"
    )
    site.ask("DELETE", f"/workers/{worker}")
    site.until_status(lost, "failed")
    page = open_page("/ui/workers")
    expect(page.locator(".grid").get_by_role("link", name="carried")).to_be_visible()
    losses = page.get_by_role("region", name="Lost executions")
    expect(losses.locator(f"a[href='/ui/jobs/{lost}']")).to_be_visible()
    expect(losses.get_by_role("link", name="gone-soon")).to_be_visible()
    site.ask("PUT", f"/jobs/{job_id}/cancel")


def test_a_worker_is_drained_after_a_confirmation(site: Site, open_page: Open) -> None:
    body = {"name": "spare", "resources": {"cpu": 1}}
    spare = site.ask("POST", "/workers/register", body)["worker_id"]
    page = open_page("/ui/workers")
    card = page.locator(".panel", has=page.get_by_role("link", name="spare"))
    card.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"rota workers drain {spare}")).to_be_visible()
    dialog.get_by_role("button", name="Drain", exact=True).click()
    expect(card.get_by_text(re.compile("draining|offline"))).to_be_visible()
    site.ask("DELETE", f"/workers/{spare}")


def test_the_timeline_shows_an_execution_and_opens_its_job(site: Site, open_page: Open) -> None:
    job_id = site.shell("sleep 600", name="barred")
    site.until_status(job_id, "running")
    page = open_page("/ui/timeline?span=5+min")
    canvas = page.locator(".gantt canvas")
    expect(canvas).to_have_attribute("data-bars", re.compile("[1-9]"))
    page.get_by_role("button", name="1 h", exact=True).click()
    expect(page).to_have_url(re.compile("span=1"))
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("after=.*before="))
    site.ask("PUT", f"/jobs/{job_id}/cancel")


def test_a_busy_timeline_shows_counts_and_a_count_zooms_in(site: Site, open_page: Open) -> None:
    job = {"name": "crowded", "task": {"kind": "noop"}, "requirements": {"cpu": 0.01}}
    site.ask("POST", "/jobs/batch", {"jobs": [job] * 1_200})
    alike = "/timeline?before=2999-01-01T00:00:00Z&after=2998-12-31T00:00:00Z"
    assert site.ask("GET", alike)["crowd"] is None
    until(lambda: site.ask("GET", "/timeline")["crowd"] is not None, "more than bars can show")
    page = open_page("/ui/timeline?span=24+h")
    canvas = page.locator(".gantt canvas")
    expect(canvas).to_have_attribute("data-cells", re.compile("[1-9]"))
    expect(page.get_by_text("executions started in this time")).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    # The newest stretch ends where now is, at the right.
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + 50)
    expect(page.get_by_text("click to zoom in")).to_be_visible()
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile("worker=.*after=|after=.*worker="))
    page.get_by_role("button", name="show all workers").click()
    expect(page).not_to_have_url(re.compile("worker="))


def test_a_queue_is_paused_undone_and_given_limits(site: Site, open_page: Open) -> None:
    site.ask("PUT", "/queues/handled", {})
    page = open_page("/ui/queues")
    row = page.locator("tr[data-id='handled']")
    row.get_by_role("button", name="Pause", exact=True).click()
    expect(row.get_by_text("paused")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(row.get_by_text("paused")).to_have_count(0)
    row.get_by_role("button", name="Limits").click()
    page.get_by_label("Executions at once").fill("7")
    page.get_by_label("Rate limit").fill("100/1m")
    page.get_by_role("button", name="Save").click()
    expect(row.get_by_text("0 / 7")).to_be_visible()
    queue = site.ask("GET", "/queues/handled")
    assert (queue["max_workers"], queue["rate_limit"]) == (7, {"count": 100, "per": 60})


def test_a_schedule_is_created_with_a_preview_of_its_instants_and_backfilled(
    site: Site, open_page: Open
) -> None:
    page = open_page("/ui/schedules")
    page.get_by_role("button", name="New schedule").click()
    page.get_by_label("Name", exact=True).fill("morning")
    page.get_by_label("Cron", exact=True).fill("0 9 * * MON-FRI")
    page.get_by_label("Time zone", exact=True).fill("Europe/Berlin")
    expect(page.get_by_text("at 09:00, Monday to Friday, Berlin")).to_be_visible()
    expect(page.locator(".ahead li").first).to_contain_text("09:00")
    page.get_by_label("Cron", exact=True).fill("0 99 * * *")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("Cron", exact=True).fill("*/5 * * * *")
    page.get_by_role("button", name="Create schedule").click()
    expect(page.get_by_role("heading", name="morning")).to_be_visible()
    page.get_by_role("button", name="Backfill").click()
    expect(page.get_by_text(re.compile(r"28\d runs"))).to_be_visible()
    page.get_by_role("button", name="Close").first.click()
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("h1 .status")).to_contain_text("paused")
    (made,) = site.ask("GET", "/schedules?name=morning")["items"]
    site.ask("DELETE", f"/schedules/{made['schedule_id']}")


def test_an_event_is_tested_and_received_events_are_listed(site: Site, open_page: Open) -> None:
    job = {"name": "import", "task": {"kind": "noop"}}
    body = {"name": "files", "event": "file.*", "filter": "data.size > 10", "job": job}
    trigger = site.ask("POST", "/triggers", body)["trigger_id"]
    site.ask(
        "POST", "/events", {"id": "1", "source": "t", "type": "file.new", "data": {"size": 50}}
    )
    page = open_page("/ui/triggers")
    expect(page.get_by_role("button", name="file.new")).to_be_visible()
    page.get_by_role("link", name="files").first.click()
    expect(page).to_have_url(re.compile(f"/ui/(triggers/{trigger}|jobs/)"))
    page.goto(f"/ui/triggers/{trigger}")
    page.get_by_role("button", name="Test an event").click()
    page.get_by_label("Type").fill("file.new")
    page.get_by_label("Data, as JSON").fill('{"size": 3}')
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("filtered")).to_be_visible()
    site.ask("DELETE", f"/triggers/{trigger}")


def test_a_trigger_is_created_and_an_event_starts_its_job(site: Site, open_page: Open) -> None:
    page = open_page("/ui/triggers")
    page.get_by_role("button", name="New trigger").click()
    page.get_by_label("Name", exact=True).fill("arrivals")
    page.get_by_label("Event type").fill("parcel.*")
    page.get_by_label("Filter, such as").fill("data.weight >")
    page.get_by_label("Command;").fill("echo '{{event.data.weight}}'")
    page.get_by_role("button", name="Create trigger").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("Filter, such as").fill("data.weight > 5")
    expect(page.get_by_text("--where 'data.weight > 5' -- echo")).to_be_visible()
    page.get_by_role("button", name="Create trigger").click()
    expect(page.get_by_role("heading", name="arrivals")).to_be_visible()
    page.get_by_role("button", name="Test an event").click()
    page.get_by_label("Data, as JSON").fill('{"weight": 9}')
    page.get_by_role("button", name="Send event", exact=True).click()
    expect(page.get_by_text("Event sent.")).to_be_visible()
    page.get_by_role("button", name="Close").first.click()
    expect(
        page.get_by_role("table", name="Events it received").get_by_text("fired")
    ).to_be_visible()
    (made,) = site.ask("GET", "/triggers?name=arrivals")["items"]
    site.ask("DELETE", f"/triggers/{made['trigger_id']}")


def test_a_token_is_created_shown_once_and_revoked(site: Site, open_page: Open) -> None:
    page = open_page("/ui/settings")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name (user and purpose)").fill("from the page")
    page.get_by_role("button", name="Create token").click()
    # The commands stand in the same dialog until the answer is there.
    shown = page.get_by_role("dialog").locator("pre", has_text=re.compile("^rota_"))
    expect(shown).to_have_count(1)
    page.get_by_role("button", name="Close").first.click()
    row = page.locator("tr", has_text="from the page")
    row.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    expect(row.get_by_text("revoked")).to_be_visible()


def test_a_viewer_is_offered_no_actions(site: Site, open_page: Open) -> None:
    token = site.ask("POST", "/tokens", {"role": "viewer", "name": "looker"})["token"]
    job_id = site.shell("exit 1", name="looked-at")
    site.until_status(job_id, "failed")
    page = open_page(f"/ui/jobs/{job_id}", token=token)
    expect(page.get_by_role("heading", name="looked-at")).to_be_visible()
    for name in ("Retry", "Delete"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    page.goto("/ui/queues")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_count(0)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_queue_with_every_limit_shows_its_buttons(
    site: Site, open_page: Open, width: int
) -> None:
    limits = {"max_workers": 20, "rate_limit": {"count": 500, "per": "1m"}, "paused": True}
    site.ask("PUT", "/queues/with-limits", limits)
    page = open_page("/ui/queues", viewport={"width": width, "height": 860})
    row = page.get_by_role("row").filter(has_text="with-limits").first
    edge = row.locator("xpath=ancestor::*[contains(@class, 'table-wrap')]").bounding_box()
    button = row.get_by_role("button", name="Purge").first.bounding_box()
    assert edge is not None
    assert button is not None
    assert button["x"] + button["width"] <= edge["x"] + edge["width"]
    site.ask("PUT", "/queues/with-limits", {})
