"""Commands that look: lists, one job, why, logs, graph, figures."""

from __future__ import annotations

import pytest

from rota.cli.logs import with_index
from rota.cli.main import run
from tests.cli.conftest import Rota
from tests.sdk.fake_server import SmallServer


def test_a_list_shows_ids_that_can_be_given_back(server: SmallServer, rota: Rota) -> None:
    job = server.add_job("invoice", "failed", queue="mail")
    listed = rota("jobs")
    assert listed.status == 0
    row = listed.out.splitlines()[1].split()
    assert row[1:4] == ["invoice", "failed", "mail"]
    assert rota("show", row[0], "--json").json["job_id"] == job.job_id


def test_a_job_that_waits_to_be_tried_again_has_no_length(server: SmallServer, rota: Rota) -> None:
    lengths = {}
    for status in ("queued", "running"):
        job = server.add_job(status, status)
        job.started_at = job.created_at
        shown = rota("show", job.job_id).out.splitlines()
        lengths[status] = "ran" in [line.split()[0] for line in shown]
    assert lengths == {"queued": False, "running": True}
    listed = (line.split() for line in rota("jobs").out.splitlines()[1:])
    assert {row[1]: row[8] == "-" for row in listed} == {"queued": True, "running": False}


def test_an_empty_list_says_so_beside_the_output(server: SmallServer, rota: Rota) -> None:
    listed = rota("jobs")
    assert (listed.status, listed.out, listed.err) == (0, "", "no jobs\n")


def test_filters_reach_the_server(server: SmallServer, rota: Rota) -> None:
    rota(
        "jobs",
        "-s",
        "failed,expired",
        "-q",
        "mail",
        "-l",
        "team=a",
        "--after",
        "2h",
        "--limit",
        "5",
    )
    query = server.seen[-1].query
    assert query["status"] == ["failed,expired"]
    assert query["queue"] == ["mail"]
    assert query["label"] == ["team:a"]
    assert query["limit"] == ["5"]
    assert "T" in query["created_after"][0]


def test_an_unknown_status_is_a_usage_error(server: SmallServer, rota: Rota) -> None:
    listed = rota("jobs", "-s", "done")
    assert listed.status == 2
    assert "succeeded" in listed.err


@pytest.mark.parametrize(("page_max", "look_max"), [(2, 1000), (1000, 3), (1000, 1)])
def test_a_list_is_as_long_as_was_asked_for_however_short_the_pages_are(
    server: SmallServer, rota: Rota, page_max: int, look_max: int
) -> None:
    for i in range(20):
        server.add_job(f"job-{i}", "failed" if i % 4 == 0 else "succeeded")
    server.page_max, server.look_max = page_max, look_max
    listed = rota("jobs", "-s", "failed", "--limit", "3", "--json").json
    assert [job["name"] for job in listed["items"]] == ["job-16", "job-12", "job-8"]
    assert listed["next_cursor"]
    rest = rota("jobs", "-s", "failed", "--cursor", listed["next_cursor"], "--json").json
    assert [job["name"] for job in rest["items"]] == ["job-4", "job-0"]
    assert rest["next_cursor"] is None
    assert len(rota("jobs", "-s", "failed").out.splitlines()) == 1 + 5


def test_a_search_that_finds_nothing_for_pages_says_so_at_its_end(
    server: SmallServer, rota: Rota
) -> None:
    for i in range(9):
        server.add_job(f"job-{i}")
    server.look_max = 2
    listed = rota("jobs", "-s", "failed")
    assert (listed.status, listed.out, listed.err) == (0, "", "no jobs\n")


def test_all_pages_come_as_one_document(server: SmallServer, rota: Rota) -> None:
    server.page_max = 2
    for i in range(5):
        server.add_job(f"job-{i}")
    assert len(rota("jobs", "--all", "--json").json["items"]) == 5


def test_one_page_is_the_servers_own_answer(server: SmallServer, rota: Rota) -> None:
    server.page_max = 2
    for i in range(5):
        server.add_job(f"job-{i}")
    page = rota("jobs", "--limit", "2", "--json").json
    assert len(page["items"]) == 2
    assert page["next_cursor"]
    rest = rota("jobs", "--json", "--cursor", page["next_cursor"]).json
    assert rest["items"][0]["job_id"] < page["items"][-1]["job_id"]


def test_a_job_is_shown_with_its_command_and_its_tries(server: SmallServer, rota: Rota) -> None:
    task = {"kind": "command", "argv": ["echo", "a b"], "env": {"X": "1"}}
    job = server.add_job("greet", task=task, requirements={"cpu": 2, "memory": "512MiB"})
    server.run(job.job_id, exit_code=3)
    shown = rota("show", job.job_id).out
    assert "X=1 echo 'a b'" in shown
    assert "2 cpu, 512 MiB memory" in shown
    assert "EXIT" in shown


def test_why_puts_the_blocking_cause_first(server: SmallServer, rota: Rota) -> None:
    job = server.add_job()
    lines = rota("why", job.job_id).out.splitlines()
    assert lines[0] == "queued asks 64 cpu, the largest worker has 8"
    assert lines[1] == "starts unknown"
    assert lines[2] == "  asks: 64"
    assert lines[3] == "and    queue default is paused"


def test_a_piped_log_keeps_every_byte(
    server: SmallServer, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    job = server.add_job()
    log = b"\x1b[31mred\x1b[0m\r\nhalf \xff\x00 line"
    server.run(job.job_id, log, exit_code=0)
    for args in (["logs", job.job_id], ["logs", "-f", job.job_id]):
        assert run(args) == 0
        assert capsysbinary.readouterr().out == log


def test_a_log_can_be_one_document(server: SmallServer, rota: Rota) -> None:
    job = server.add_job()
    server.run(job.job_id, b"hello\n", exit_code=0)
    assert rota("logs", job.job_id, "--json").json == {"job_id": job.job_id, "log": "hello\n"}
    assert rota("logs", "-f", job.job_id, "--json").status == 2


def test_a_graph_is_drawn_as_a_tree(server: SmallServer, rota: Rota) -> None:
    top = server.add_job("top", "succeeded")
    left = server.add_job("left", dependencies=[top.job_id])
    server.add_job("right", dependencies=[{"job_id": top.job_id, "when": "failed"}])
    drawn = rota("graph", left.job_id).out.splitlines()
    assert [line.split()[-2 if "<-" in line else -1] for line in drawn[:2]] == [
        "succeeded",
        "queued",
    ]
    assert drawn[1].startswith("├─ ")
    assert drawn[1].endswith("<-")
    assert drawn[2].startswith("└─ ")
    assert "when failed" in drawn[2]


def test_queues_workers_and_executions_are_listed(server: SmallServer, rota: Rota) -> None:
    worker = server.add_worker("box-1")
    job = server.add_job()
    execution_id = server.run(job.job_id)
    rota("queues", "set", "mail", "--max-workers", "2")
    assert "mail" in rota("queues").out
    assert "1 GiB / 8 GiB" in rota("workers").out
    assert rota("workers", "--json").json["items"][0]["worker_id"] == worker.worker_id
    assert "box-1" in rota("workers", "show", "box-1").out
    assert execution_id[-8:] in rota("executions", "--job", job.job_id).out
    assert rota("executions", "show", execution_id[-8:], "--json").json["fence"] == 1


def test_statistics_are_printed(server: SmallServer, rota: Rota) -> None:
    server.add_job("a", "failed")
    assert "failed" in rota("stats").out
    assert rota("stats", "--json").json["jobs"] == {"failed": 1}
    assert "here" in rota("cluster").out
    assert rota("dead-letters", "--json").json["items"][0]["name"] == "a"


def test_the_live_view_draws_one_frame_where_nobody_watches(
    server: SmallServer, rota: Rota
) -> None:
    server.add_worker("box-1")
    server.run(server.add_job("busy").job_id)
    frame = rota("top", "--once").out
    assert "box-1" in frame
    assert "busy" in frame
    assert "1 running" in frame
    assert rota("top", "--json").json["running"][0]["name"] == "busy"


def test_the_stream_prints_a_document_a_line(server: SmallServer, rota: Rota) -> None:
    job = server.add_job()

    def change_and_stop() -> None:
        server.move(job.job_id, "running")
        server.faults += [401]
        server.end_streams()

    server.on_stream = change_and_stop
    streamed = rota("stream", "--json")
    assert streamed.json["status"] == "running"
    assert streamed.status == 1


def test_lines_of_a_member_are_marked_wherever_a_piece_is_cut() -> None:
    pieces = [b"one\ntw", b"", b"o\n", b"three"]
    assert b"".join(with_index(pieces, 7)) == b"[7] one\n[7] two\n[7] three\n"
    assert b"".join(with_index([b""], 7)) == b""
