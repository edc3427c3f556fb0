"""Pages of job groups, explanations, files, tenants, policy and simulation."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.browser.conftest import Open, Site
from tests.process.cell import until

HOSTILE = "<img src=x onerror=alert(1)>"
SOON = "2100-01-01T00:00:00Z"


def test_an_array_shows_one_bar_and_retries_its_failed_members(
    site: Site, open_page: Open, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    script = f'test "$ROTA_ARRAY_INDEX" != 3 || test -e {good}'
    array = site.shell(script, name="frames", count=6)
    site.until_status(array, "failed")
    page = open_page(f"/ui/jobs/{array}")
    bar = page.get_by_role("img", name="5 succeeded, 1 failed")
    expect(bar).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(6)
    page.get_by_role("link", name="1 failed").click()
    expect(page).to_have_url(re.compile("tab=members&state=failed"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_text("As a command").click()
    expect(page.get_by_text(f"rota jobs --array {array} --status failed")).to_be_visible()
    page.locator("tbody tr").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("failed")
    expect(page.locator(".sub")).to_contain_text("member 3 of array")
    expect(page.get_by_role("button", name="Retry", exact=True)).to_have_count(0)
    page.get_by_role("link", name=re.compile("^array ")).click()
    good.touch()
    page.get_by_role("button", name="Retry", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Only members that did not succeed run again")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_role("img", name="6 succeeded", exact=True)).to_be_visible()


def test_a_running_array_is_cancelled_as_a_whole_and_explains_what_its_members_wait_for(
    site: Site, open_page: Open
) -> None:
    array = site.shell("sleep 600", name="slow-frames", count=50, max_parallel=2)
    page = open_page(f"/ui/jobs/{array}")
    expect(page.get_by_role("img", name="2 running, 48 queued")).to_be_visible()
    expect(page.get_by_text("at most 2 at once")).to_be_visible()
    expect(page.get_by_role("heading", name="Why not all members run")).to_be_visible()
    expect(page.get_by_text("2 of its members are started")).to_be_visible()
    expect(page.get_by_role("button", name="Run on a worker")).to_have_count(0)
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("All of the array")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("img", name="50 cancelled")).to_be_visible()


def test_a_gang_shows_its_workers_and_a_large_gang_that_no_member_has_started(
    site: Site, open_page: Open
) -> None:
    gang = site.shell("sleep 600", name="ring", gang={"size": 3})
    page = open_page(f"/ui/jobs/{gang}")
    expect(page.get_by_text("Gang of 3")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(3)
    site.ask("PUT", f"/jobs/{gang}/cancel")
    large = site.shell("true", name="wide", gang={"size": 60}, requirements={"cpu": 2})
    page.goto(f"/ui/jobs/{large}")
    expect(page.get_by_text("No member has started yet.")).to_be_visible()
    expect(page.get_by_text("gang short by").first).to_be_visible()
    site.ask("PUT", f"/jobs/{large}/cancel")


def test_a_waiting_job_shows_its_start_its_position_its_deadline_and_what_would_help(
    site: Site, open_page: Open
) -> None:
    blocks = [
        site.shell("sleep 600", name="block", requirements={"cpu": 3.5}, expected_runtime="10m")
        for _ in range(2)
    ]
    for one in blocks:
        site.until_status(one, "running")
    terms = {"requirements": {"cpu": 3}, "expected_runtime": "1m", "finish_by": SOON}
    job_id = site.shell("true", name="in-line", **terms)
    page = open_page(f"/ui/jobs/{job_id}")
    why = page.get_by_role("region", name="Why it is not running")
    expect(why).to_contain_text("resources are busy: asks 3 cpu")
    expect(why).to_contain_text(re.compile(r"At about .*likely .* to in \d+ min"))
    expect(why.get_by_role("img", name=re.compile("likely"))).to_be_visible()
    expect(why).to_contain_text(re.compile("estimate has been checked|fell inside"))
    expect(why.get_by_text(re.compile("then it starts at once")).first).to_be_visible()
    expect(why).to_contain_text("Queue position: 0 ahead of it, of 1 similar job")
    expect(why).to_contain_text(re.compile(r"Deadline:.*on time, .* to spare"))
    why.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("/ui/(workers|jobs)/"))
    for one in (job_id, *blocks):
        site.ask("PUT", f"/jobs/{one}/cancel")


def test_an_execution_shows_its_files_with_checksums_and_its_memory_beside_the_request(
    site: Site, open_page: Open
) -> None:
    content = b"\0" * 1_500_000
    script = 'head -c 1500000 /dev/zero > "$ROTA_ARTIFACTS/model.bin"'
    needs = {"cpu": 0.1, "memory": "64MiB"}
    job_id = site.shell(script, name="leaves", requirements=needs)
    site.until_status(job_id, "succeeded")
    page = open_page(f"/ui/jobs/{job_id}?tab=executions")
    expect(page.get_by_text(f"sha256 {sha256(content).hexdigest()[:12]}")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("memory: .* used"))).to_be_visible()
    expect(page.get_by_text(re.compile("of 64 MiB"))).to_be_visible()
    expect(page.get_by_text(f"rota artifacts get {job_id}")).to_be_visible()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="model.bin").click()
    assert Path(waiting.value.path()).read_bytes() == content


def test_a_job_lists_its_bundles_and_marks_a_deleted_one(site: Site, open_page: Open) -> None:
    answer = site.http.post(
        "/bundles",
        params={"name": "hello.sh"},
        content=b"#!/bin/sh\necho hello\n",
        headers={"Content-Type": "application/octet-stream"},
    )
    assert answer.is_success, answer.text
    bundle = answer.json()["bundle_id"]
    task = {"kind": "bundle", "bundle_id": bundle, "inputs": {"again": bundle}}
    job_id = site.ask("POST", "/jobs", {"name": "bundled", "task": task})["job_id"]
    site.until_status(job_id, "succeeded")
    page = open_page(f"/ui/jobs/{job_id}?tab=details")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Bundles"))
    expect(panel.get_by_role("link", name="hello.sh")).to_have_count(2)
    expect(panel).to_contain_text("input again:")
    site.ask("DELETE", f"/bundles/{bundle}")
    page.reload()
    expect(panel.get_by_text("was deleted: executions that need it").first).to_be_visible()


def test_a_tenant_gets_a_weight_and_quotas_and_an_invalid_quota_shows_a_message(
    site: Site, open_page: Open
) -> None:
    job_id = site.shell("sleep 600", name="theirs", tenant="acme")
    site.until_status(job_id, "running")
    page = open_page("/ui/queues")
    row = page.locator("tr[data-id='acme']")
    expect(row.get_by_role("img", name=re.compile("uses .* its fair share is"))).to_be_visible()
    row.get_by_role("button", name="Quotas").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Weight").fill("2.5")
    dialog.get_by_label("Running at once").fill("7")
    dialog.get_by_label("Memory at once").fill("3GiB")
    expect(
        dialog.get_by_text("rota tenants set acme --weight=2.5 --running=7 --queued=none")
    ).to_be_visible()
    page.keyboard.press("Enter")
    expect(row).to_contain_text("1 / 7")
    expect(row).to_contain_text("/ 3 GiB")
    tenant = site.ask("GET", "/tenants/acme")
    assert (tenant["weight"], tenant["quota"]["memory"]) == (2.5, 3 * 1024**3)
    page.get_by_role("button", name="New tenant").click()
    dialog.get_by_label("Name").fill(HOSTILE)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    site.ask("PUT", f"/jobs/{job_id}/cancel")


def test_a_preset_is_explained_applied_and_undone(site: Site, open_page: Open) -> None:
    before = site.ask("GET", "/policy")
    page = open_page("/ui/queues")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Policy"))
    expect(panel).to_contain_text("the tenant with the least use for its weight")
    panel.get_by_role("button", name="Use a preset").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Preset").select_option("strict")
    expect(dialog.get_by_role("note")).to_contain_text(
        "A job with a low priority may wait for ever"
    )
    expect(dialog.get_by_text("rota policy set --preset strict")).to_be_visible()
    dialog.get_by_role("button", name="Apply policy", exact=True).click()
    expect(panel).to_contain_text("strictly by priority")
    assert site.ask("GET", "/policy")["order"] == "priority"
    page.get_by_role("button", name="Undo").click()
    expect(panel).to_contain_text("the tenant with the least use for its weight")
    until(lambda: site.ask("GET", "/policy") == before, "the policy of before")


def test_a_viewer_sees_shares_and_policy_and_cannot_change_them(
    site: Site, open_page: Open
) -> None:
    token = site.ask("POST", "/tokens", {"role": "viewer", "name": "onlooker"})["token"]
    site.ask("PUT", "/tenants/seen", {"weight": 3})
    page = open_page("/ui/queues", token=token)
    expect(page.locator("tr[data-id='seen']")).to_be_visible()
    expect(page.get_by_role("heading", name="Policy")).to_be_visible()
    for name in ("Quotas", "New tenant", "Use a preset"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.goto("/ui/simulate")
    expect(page.get_by_role("button", name="Simulate", exact=True)).to_be_disabled()
    expect(page.get_by_text("This needs the role operator")).to_be_visible()


def test_past_jobs_are_simulated_under_other_policies_side_by_side(
    site: Site, open_page: Open
) -> None:
    for job_id in [site.shell("true", name="replayed") for _ in range(5)]:
        site.until_status(job_id, "succeeded")
    page = open_page("/ui/simulate")
    expect(page.get_by_text("A simulation changes nothing.")).to_be_visible()
    page.get_by_role("button", name="1 h", exact=True).click()
    page.get_by_role("button", name="strict").click()
    page.get_by_label("Workers (empty").fill("3")
    expect(page).to_have_url(re.compile("policies=recorded%2Ccurrent%2Ceasy%2Cstrict"))
    expect(page.get_by_role("button", name="fcfs")).to_be_disabled()
    page.get_by_text("As a command").click()
    expect(page.get_by_text("rota history replay --after")).to_be_visible()
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_text("on 3 workers")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.get_by_role("img", name=re.compile("^Mean wait: recorded"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^In use: recorded"))).to_be_visible()
    page.goto("/ui/simulate?from=2020-01-01T00:00&to=2020-01-02T00:00")
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("no job that was submitted in this time")


def test_an_uploaded_trace_is_simulated_on_other_machines_and_an_invalid_file_shows_a_message(
    open_page: Open, tmp_path: Path
) -> None:
    line = "{0} {1} {2} 60 3 -1 -1 3 60 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
    log = "; MaxProcs: 4\n" + "".join(line.format(n, 10 * n, 50 * n) for n in range(4))
    (tmp_path / "cluster.swf").write_text(log, encoding="utf-8")
    (tmp_path / "jobs.csv").write_text("name,cpu\nbackup,2\n", encoding="utf-8")
    page = open_page("/ui/simulate")
    page.get_by_role("button", name="Trace").click()
    expect(page.get_by_role("button", name="Simulate", exact=True)).to_be_disabled()
    chosen = page.get_by_label("Trace: a log in SWF")
    chosen.set_input_files(tmp_path / "jobs.csv")
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("jobs.csv, line 1")
    expect(page.get_by_role("alert")).to_contain_text("Standard Workload Format")
    chosen.set_input_files(tmp_path / "cluster.swf")
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_text("4 jobs of cluster.swf, on 1 worker with 4 cpus")).to_be_visible()
    recorded = page.locator("tr[data-id='recorded']")
    expect(recorded).to_contain_text("2 min 30 s")
    page.get_by_label("Machines").select_option("alike")
    page.get_by_label("Workers", exact=True).fill("4")
    page.get_by_label("Processors of each").fill("3")
    page.get_by_text("As a command").click()
    command = "rota simulate --swf cluster.swf --workers 4 --cpu 3 --policy recorded,easy"
    expect(page.get_by_text(command)).to_be_visible()
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_text("on 4 workers with 12 cpus")).to_be_visible()
    expect(page.locator("tr[data-id='easy']")).to_contain_text("0 s")
    expect(page.get_by_role("img", name=re.compile("^Mean wait: recorded"))).to_be_visible()


def test_the_timeline_shows_a_reservation_in_the_future(site: Site, open_page: Open) -> None:
    body = {"name": "kept-free", "resources": {"cpu": 8}, "queues": ["kept"]}
    worker = site.ask("POST", "/workers/register", body)["worker_id"]
    more = {"queue": "kept", "expected_runtime": "20s"}
    runs = site.shell("true", name="holds", **{**more, "requirements": {"cpu": 5}})
    until(lambda: lease(site, worker), "the first of them")
    wide = site.shell("true", name="wide", **{**more, "requirements": {"cpu": 8}})
    small = site.shell("true", name="passes", **{**more, "requirements": {"cpu": 1}})
    lease(site, worker)
    page = open_page("/ui/timeline?span=5+min")
    canvas = page.locator(".gantt canvas")
    expect(canvas).to_have_attribute("data-reserved", "1")
    page.goto(f"/ui/jobs/{wide}")
    expect(page.get_by_text("capacity is reserved for it")).to_be_visible()
    for one in (wide, small, runs):
        site.ask("DELETE", f"/jobs/{one}?force=true")
    site.ask("DELETE", f"/workers/{worker}")


def lease(site: Site, worker: str) -> Any:
    asked = {"max": 5, "wait": "1s"}
    return site.ask("POST", f"/workers/{worker}/lease", asked)["executions"]
