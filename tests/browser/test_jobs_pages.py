"""Jobs pages: search, details, actions; and text of hostile jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Site
from tests.process.cell import until

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
GRAPH_JOBS = 2_000
LATER = "2100-01-01T00:00:00Z"


def rows(page: Page) -> list[str]:
    return [one.get_attribute("data-id") or "" for one in page.locator("tbody tr").all()]


def test_a_filter_is_kept_in_the_address_and_survives_a_reload(site: Site, open_page: Open) -> None:
    wanted = site.shell("exit 1", name="filtered", labels={"team": "red"})
    other = site.shell("true", name="filtered", labels={"team": "blue"})
    site.until_status(wanted, "failed")
    page = open_page("/ui/jobs")
    page.get_by_label("Add a filter").fill("team:red")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="failed").click()
    expect(page.locator(f"tr[data-id='{wanted}']")).to_be_visible()
    expect(page.locator(f"tr[data-id='{other}']")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"status=failed.*label=team%3Ared"))
    page.reload()
    expect(page.locator(f"tr[data-id='{wanted}']")).to_be_visible()
    assert other not in rows(page)


def test_typing_filters_the_rows_at_once_and_enter_searches_all_jobs(
    site: Site, open_page: Open
) -> None:
    wanted = site.shell("true", name="narrowed-down", labels={"team": "amber"})
    other = site.shell("true", name="another")
    page = open_page("/ui/jobs")
    expect(page.locator(f"tr[data-id='{other}']")).to_be_visible()
    for text in ("rowed-do", "team:amb", wanted[-8:]):
        page.get_by_label("Add a filter").fill(text)
        expect(page.locator(f"tr[data-id='{wanted}']")).to_be_visible()
        expect(page.locator(f"tr[data-id='{other}']")).to_have_count(0)
    page.get_by_label("Add a filter").fill("narrowed-down")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("name=narrowed-down"))


def test_a_job_is_found_by_its_whole_id_and_by_the_beginning_of_it(
    site: Site, open_page: Open
) -> None:
    job_id = site.shell("true", name="sought")
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(job_id)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="sought")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(job_id[:13])
    page.keyboard.press("Enter")
    expect(page.locator(f"tr[data-id='{job_id}']")).to_be_visible()


def test_a_list_is_used_with_the_keyboard_alone(site: Site, open_page: Open) -> None:
    site.shell("true", name="walked")
    newest = site.shell("true", name="walked")
    page = open_page("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.locator(f"tr[data-id='{newest}']")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tbody tr").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/jobs/[0-9a-f-]{36}$"))
    page.go_back()
    expect(page).to_have_url(re.compile("/ui/jobs$"))


def test_all_matching_jobs_are_cancelled_after_a_count_and_restored_by_undo(
    site: Site, open_page: Open
) -> None:
    ids = [site.shell("true", name="bulky", run_at=LATER) for _ in range(3)]
    page = open_page("/ui/jobs?name=bulky")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Select all shown").check()
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_test_id("bulk-count")).to_have_text("3")
    expect(dialog.get_by_text(f"rota cancel {ids[2]}")).to_be_visible()
    expect(dialog.get_by_text("curl -X POST")).to_be_visible()
    dialog.get_by_role("button", name="Cancel jobs").click()
    expect(page.get_by_text("3 jobs cancelled")).to_be_visible()
    assert {site.status(one) for one in ids} == {"cancelled"}
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Undone for 3 jobs")).to_be_visible()
    assert {site.status(one) for one in ids} == {"pending"}
    site.ask("POST", "/jobs/bulk", {"action": "cancel", "filter": {"name": "bulky"}})


def test_a_log_is_followed_live_in_colour_and_searched(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = (
        r"printf '\033[31mred words\033[0m\n'; seq 1 300; "
        f"while [ ! -e {go} ]; do sleep 0.1; done; echo the needle; echo last line"
    )
    job_id = site.shell(script, name="talks")
    page = open_page(f"/ui/jobs/{job_id}")
    log = page.get_by_role("log")
    expect(log.get_by_text("300", exact=True).first).to_be_visible()
    go.touch()
    expect(log.get_by_text("last line")).to_be_visible()
    expect(page.get_by_text("ended", exact=True)).to_be_visible()
    page.get_by_label("Search the log").fill("red words")
    page.keyboard.press("Enter")
    expect(log.locator(".log-line.found .ansi-f1 mark")).to_have_text("red words")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download").click()
    text = Path(waiting.value.path()).read_text()
    assert text.endswith("the needle\nlast line\n")
    assert waiting.value.suggested_filename.startswith("talks-")


def test_a_running_job_is_cancelled_from_its_page(site: Site, open_page: Open) -> None:
    job_id = site.shell("sleep 600", name="long")
    site.until_status(job_id, "running")
    page = open_page(f"/ui/jobs/{job_id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"rota cancel {job_id}")).to_be_visible()
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("h1 .status")).to_contain_text("cancelled")
    site.until_status(job_id, "cancelled")


def test_a_job_that_cannot_run_says_why(site: Site, open_page: Open) -> None:
    job_id = site.shell("true", name="huge", requirements={"cpu": 512})
    page = open_page(f"/ui/jobs/{job_id}")
    expect(page.get_by_text("no worker could ever run this")).to_be_visible()
    expect(page.get_by_text("Never, unless something changes.")).to_be_visible()
    page.get_by_text("As a command").click()
    expect(page.get_by_text(f"rota why {job_id}")).to_be_visible()
    site.ask("PUT", f"/jobs/{job_id}/cancel")


def test_a_failed_job_shows_its_executions_and_starts_over(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    retry = {"max_attempts": 2, "delay": "0.1s"}
    job_id = site.shell(f"test -e {good}", name="moody", retry=retry)
    site.until_status(job_id, "failed")
    good.touch()
    page = open_page(f"/ui/jobs/{job_id}")
    expect(page.get_by_role("note").get_by_text("exit code 1")).to_be_visible()
    page.get_by_role("tab", name="Executions 2").click()
    expect(page.get_by_role("heading", name="Attempt 2")).to_be_visible()
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.locator("h1 .status")).to_contain_text("succeeded")


def test_text_of_users_is_shown_and_never_executed(site: Site, open_page: Open) -> None:
    payload = {"note": HOSTILE}
    script = f"echo '{HOSTILE}'; echo '\\033]8;;javascript:alert(3)\\033\\\\link'; exit 1"
    hostile = {"labels": {HOSTILE: HOSTILE}, "payload": payload}
    job_id = site.shell(script, name=HOSTILE, **hostile)
    site.until_status(job_id, "failed")
    page = open_page("/ui/jobs")
    expect(page.get_by_role("link", name=HOSTILE).first).to_be_visible()
    page.goto(f"/ui/jobs/{job_id}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    expect(page.get_by_role("log").get_by_text(HOSTILE)).to_be_visible()
    for path in (f"/ui/jobs/{job_id}?tab=details", "/ui/dead-letters", "/ui/timeline", "/"):
        page.goto(path)
        expect(page.locator(".loading")).to_have_count(0)
        assert page.locator("img[src='x']").count() == 0
    # That no alert was shown and nothing was asked elsewhere, the fixture looks at.


def test_a_graph_of_two_thousand_jobs_is_drawn_panned_and_clicked(
    site: Site, open_page: Open
) -> None:
    jobs = [
        {"name": "root", "ref": "0", "task": {"kind": "noop"}, "run_at": "2100-01-01T00:00:00Z"}
    ]
    for number in range(1, GRAPH_JOBS):
        parent = f"ref:{(number - 1) // 6}"
        one = {"name": f"n{number}", "ref": str(number), "task": {"kind": "noop"}}
        jobs.append({**one, "dependencies": [parent]})
    ids = site.ask("POST", "/jobs/batch", {"jobs": jobs})["job_ids"]
    page = open_page(f"/ui/jobs/{ids[0]}?tab=graph")
    canvas = page.locator("canvas.graph-canvas")
    expect(canvas).to_have_attribute("data-nodes", str(GRAPH_JOBS))
    expect(page.get_by_text("2,000 jobs, 1,999 dependencies")).to_be_visible()
    for _ in range(8):
        page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Fit").click()
    page.get_by_text("As a list").click()
    page.get_by_role("link", name="n7", exact=True).click()
    expect(page).to_have_url(re.compile(ids[7]))
    site.ask("PUT", f"/jobs/{ids[0]}/cancel")


def test_a_node_of_a_small_graph_is_opened_by_a_click(site: Site, open_page: Open) -> None:
    task = {"kind": "noop"}
    jobs = [
        {"name": "first", "ref": "a", "task": task},
        {"name": "second", "task": task, "dependencies": ["ref:a"]},
    ]
    ids = site.ask("POST", "/jobs/batch", {"jobs": jobs})["job_ids"]
    page = open_page(f"/ui/jobs/{ids[0]}?tab=graph")
    canvas = page.locator("canvas.graph-canvas")
    expect(canvas).to_have_attribute("data-nodes", "2")
    box = canvas.bounding_box()
    assert box is not None
    # Two boxes beside each other in the middle: the right one is the second job.
    page.mouse.click(box["x"] + box["width"] / 2 + 120, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(ids[1]))


@pytest.mark.slow
def test_a_log_of_sixty_megabytes_opens_at_its_end_and_does_not_freeze(
    site: Site, open_page: Open
) -> None:
    """The size that a server keeps; the unit tests of the log window use a hundred megabytes."""
    site.ask("PUT", "/queues/loud", {"limits": {"log_size": "64MiB"}})
    script = "echo the first line; yes 'a line of sixty characters, more or less, as logs have' "
    script += "| head -n 1100000; echo the very end"
    job_id = site.shell(script, name="loud", queue="loud")
    until(lambda: site.status(job_id) == "succeeded", "a long log", 120)
    page = open_page(f"/ui/jobs/{job_id}")
    log = page.get_by_role("log")
    expect(log.get_by_text("the very end")).to_be_visible()
    page.get_by_label("Search the log").fill("the first line")
    page.keyboard.press("Enter")
    # The page goes on answering while it fetches and searches all of it.
    while page.locator(".log-line.found").count() == 0:
        assert page.locator(".log-line").count() < 200
    expect(page.locator(".log-line.found")).to_contain_text("the first line")
