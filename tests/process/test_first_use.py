"""First use from the command line: start, submit, look, stop; and starts that are refused."""

from __future__ import annotations

import json
import signal
import socket
import stat

import psutil
import pytest

from tests.process.cell import Cell, is_alive, shell, until

pytestmark = pytest.mark.process


def test_the_first_use_goes_from_a_start_to_a_finished_job(cell: Cell) -> None:
    cell.up("--workers", "1", "--port", "0")
    assert cell.server.text().splitlines()[0].endswith(cell.url)
    done = cell.run("submit", "--wait", "--", "echo", "hello")
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.split()[0]
    assert done.stdout.split()[1] == "succeeded"
    assert cell.run("logs", job_id).stdout == "hello\n"
    listed = json.loads(cell.run("jobs", "--json").stdout)
    assert [(job["job_id"], job["status"]) for job in listed["items"]] == [(job_id, "succeeded")]
    waiting = json.loads(cell.run("submit", "--json", "--cpu", "500", "--", "true").stdout)
    why = cell.run("why", waiting["job_id"])
    assert why.returncode == 0, why.stderr
    assert "500" in why.stdout


def test_jobs_that_run_side_by_side_on_gpus_that_the_operator_counted_see_different_ones(
    cell: Cell,
) -> None:
    cell.up()
    cell.worker("cards", "--gpu", "2")
    client = cell.client()
    both = 'while [ "$(ls {0} | wc -l)" -lt 2 ]; do : > {0}/$CUDA_VISIBLE_DEVICES; done'
    (cell.folder / "seen").mkdir()
    job = shell(both.format(cell.folder / "seen"), "train", requirements={"gpu": 1})
    for one in [client.submit(job) for _ in range(2)]:
        assert cell.until_status(client, one.job_id, "succeeded", "failed").status == "succeeded"
    assert sorted(file.name for file in (cell.folder / "seen").iterdir()) == ["0", "1"]


def test_a_failed_job_makes_a_waiting_submit_fail(cell: Cell) -> None:
    cell.up("--workers", "1")
    done = cell.run("submit", "--wait", "--", "sh", "-c", "exit 3")
    assert done.returncode != 0
    assert "failed" in done.stdout + done.stderr


def test_the_token_file_can_be_read_by_its_owner_only(cell: Cell) -> None:
    cell.up()
    for path in (
        cell.data / "token",
        cell.data / "local.json",
        cell.folder / "state/rota/local.json",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(cell.data.stat().st_mode) == 0o700
    assert cell.token not in cell.server.text()


def test_ctrl_c_lets_a_running_job_finish(cell: Cell) -> None:
    server = cell.up("--workers", "1")
    client = cell.client()
    gate = cell.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    job = client.submit(cell.witness_job("long", waits))
    cell.until_witnessed("long")
    server.signal(signal.SIGINT)
    until(lambda: "draining" in server.text(), "a word about draining")
    gate.touch()
    assert server.wait() == 0
    assert not (cell.data / "local.json").exists()
    cell.up()
    assert cell.client().job(job.job_id).status == "succeeded"
    assert len(cell.witnessed("long")) == 1


def test_a_second_ctrl_c_does_not_wait_for_the_job(cell: Cell) -> None:
    server = cell.up("--workers", "1")
    job = cell.client().submit(cell.witness_job("long", "sleep 600"))
    cell.until_witnessed("long")
    server.signal(signal.SIGINT)
    until(lambda: "draining" in server.text(), "a word about draining")
    server.signal(signal.SIGINT)
    assert server.wait() == 0
    cell.up()
    given_back = cell.client().job(job.job_id)
    assert (given_back.status, given_back.attempt) == ("queued", 0), "the attempt does not count"


def one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_a_second_server_on_the_same_data_is_refused_in_one_line(cell: Cell) -> None:
    first = cell.up()
    second = cell.run("up", "--port", "0", "--data", str(cell.data))
    assert second.returncode == 1
    text = one_line(second.stderr)
    assert str(first.pid) in text
    assert str(cell.data) in text
    assert cell.client().health().status == "ok"
    assert (cell.data / "local.json").exists()


def test_a_taken_port_is_reported_in_one_line(cell: Cell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = cell.run("up", "--port", port, "--data", str(cell.data))
    assert refused.returncode == 1
    text = one_line(refused.stderr)
    assert port in text
    assert "--port" in text


@pytest.mark.parametrize("command", ["up", "server"])
def test_an_address_on_the_network_needs_tls_or_an_explicit_option(
    cell: Cell, command: str
) -> None:
    args = (command, "--host", "0.0.0.0", "--port", "0", "--data", str(cell.data))
    refused = cell.run(*args)
    assert refused.returncode == 1
    assert "--tls-cert" in one_line(refused.stderr)
    naked = cell.run(*args, "--insecure", "--no-auth")
    assert naked.returncode == 1
    assert "--no-auth" in one_line(naked.stderr)
    assert not cell.data.exists()


def test_an_unusable_data_folder_is_reported_in_one_line(cell: Cell) -> None:
    cell.data.write_text("a file, not a folder")
    refused = cell.run("up", "--port", "0", "--data", str(cell.data))
    assert refused.returncode != 0
    assert "data" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_requests_without_a_token_are_refused(cell: Cell) -> None:
    cell.up()
    job = shell("true")
    asked = cell.http()
    for token in ("", "wrong", cell.token + "x", "x" * 10_000):
        stranger = cell.http(token=token)
        for answer in (stranger.get("/jobs"), stranger.post("/jobs", json=job)):
            assert answer.status_code == 401, answer.text
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
    assert cell.http(token="").get("/healthz").status_code == 200
    assert asked.get("/jobs", headers={"Host": "evil.example"}).status_code == 421
    for stranger_page in ("http://evil.example", "null", f"http://127.0.0.1:{cell.port + 1}"):
        answer = asked.post("/jobs", json=job, headers={"Origin": stranger_page})
        assert answer.status_code == 403, answer.text
        answer = asked.get("/jobs", headers={"Origin": stranger_page})
        assert answer.status_code == 403, answer.text
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert asked.post("/jobs", json=job, headers=cross).status_code == 403
    assert asked.get("/jobs").json()["items"] == []


def test_processes_that_the_server_started_end_with_it(cell: Cell) -> None:
    server = cell.up("--workers", "2")
    until(lambda: len(cell.client().workers(status=["online"])) == 2, "both workers")
    children = [child.pid for child in psutil.Process(server.pid).children(recursive=True)]
    assert len(children) >= 2
    server.kill()
    until(lambda: not any(map(is_alive, children)), "the end of the local workers")
