"""What goes wrong, in one line each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from rota.cli.connect import CommandLimits
from tests.cli.conftest import Rota
from tests.sdk.fake_server import TOKEN, SmallServer


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_URL", url)
    return url


def test_a_server_that_is_down_is_said_with_how_to_start_one(nobody: str, rota: Rota) -> None:
    ran = rota("jobs")
    assert ran.status == 1
    assert ran.out == ""
    expected = (
        f"rota: no server at {nobody} (connection refused). The address comes from ROTA_URL."
        " Start one with: rota up, or name another: ROTA_URL=http://HOST:PORT\n"
    )
    assert ran.err == expected


@pytest.mark.parametrize("words", [("worker",), ("up", "--port", "0")])
def test_where_no_worker_can_run_that_is_said_before_anything_is_started(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.platform", "darwin")
    ran = rota(*words)
    assert ran.status == 1
    assert ran.err.startswith("rota: workers run on Linux only, and this is darwin: start them in")
    assert not (tmp_path / ".rota").exists()


@pytest.fixture
def quiet_port(nobody: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The default address, of which the tests know that nothing listens there."""
    monkeypatch.delenv("ROTA_URL")
    monkeypatch.delenv("ROTA_TOKEN", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return nobody


@pytest.fixture
def at_default(quiet_port: str, rota: Rota) -> Rota:
    """Commands whose default address is that one."""
    return partial(rota, limits=CommandLimits(url_default=quiet_port))


@pytest.mark.parametrize("words", [("jobs",), ("submit", "--noop"), ("logs", "-f", "abcdef01")])
def test_of_a_server_without_tls_that_is_asked_with_it_that_is_said(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    url = server.url.replace("http://", "https://")
    monkeypatch.setenv("ROTA_URL", url)
    message = rota(*words).err
    assert message.startswith(f"rota: no server at {url} (it speaks http there, not https). "), (
        message
    )


def leave(folder: Path, **announced: str) -> None:
    """What a server leaves in a folder: where it is, or only its token."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text("left\n")
    if announced:
        (folder / "local.json").write_text(json.dumps({"data": str(folder), **announced}))


def test_of_a_server_that_has_stopped_its_folder_and_how_to_start_it_are_said(
    quiet_port: str, at_default: Rota, tmp_path: Path
) -> None:
    line = f"rota: no server at {quiet_port} (connection refused). "
    other = ", or name another: ROTA_URL="
    first = f"It is the default address. Start one with: rota up{other}http://HOST:PORT\n"
    assert at_default("jobs").err == line + first
    here = tmp_path / ".rota"
    leave(here)
    stopped = f"The server of {here} has stopped, so the default address was used."
    again = f"{line}{stopped} Start it again with: rota up{other}"
    assert at_default("jobs").err == f"{again}http://HOST:PORT\n"
    leave(tmp_path / "state/rota", url="http://127.0.0.1:1")
    assert at_default("jobs").err == f"{again}http://127.0.0.1:1\n"


def test_of_a_server_that_was_killed_the_file_that_names_it_is_said(
    quiet_port: str, at_default: Rota, tmp_path: Path
) -> None:
    away = tmp_path / "away data"
    leave(away, url=quiet_port)
    state = tmp_path / "state/rota"
    state.mkdir(parents=True)
    (away / "local.json").rename(state / "local.json")
    message = at_default("jobs").err
    assert f"The address comes from {state / 'local.json'}. Start it again with: " in message
    assert f"rota up --data '{away}', or name another: ROTA_URL=http://HOST:PORT" in message


def test_another_server_where_a_stopped_one_may_have_been_gets_no_token_and_is_told_of(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ROTA_URL", "ROTA_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    at_default = partial(rota, limits=CommandLimits(url_default=server.url))
    leave(tmp_path / ".rota")
    expected = (
        f"rota: {server.url} wants a token, and that of {tmp_path}/.rota was not sent: its server"
        " has stopped, and another one answers there. Start it again with: rota up, or name the"
        f" other: ROTA_URL={server.url}, with its ROTA_TOKEN unless it is yours\n"
    )
    assert at_default("jobs").err == expected
    assert not any("authorization" in one.headers for one in server.seen)
    monkeypatch.setenv("ROTA_TOKEN", "wrong")
    message = at_default("jobs").err
    assert "does not accept the token from ROTA_TOKEN: " in message
    assert "stopped" not in message
    monkeypatch.delenv("ROTA_TOKEN")
    leave(tmp_path / "state/rota", url=server.url, token=TOKEN)
    monkeypatch.setenv("ROTA_URL", server.url)
    assert at_default("jobs").status == 0, "who names the server gets the token that goes with it"


def test_of_several_servers_the_next_is_asked_and_all_are_named_if_none_answers(
    server: SmallServer, nobody: str, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", f"{nobody},{server.url}")
    assert rota("stats", "--json").status == 0
    monkeypatch.setenv("ROTA_URL", f"{nobody},{nobody}/other")
    message = f"rota: no server at {nobody}, {nobody}/other (connection refused)"
    assert rota("stats").err.startswith(message)


@pytest.mark.parametrize(
    "args", [("--env", "REGION=north"), ("--env", ""), ("--silence", "10ms"), ("--silence", "x")]
)
def test_a_worker_is_not_started_with_options_that_make_no_sense(
    rota: Rota, args: tuple[str, ...]
) -> None:
    assert rota("worker", *args).status == 2


def test_a_missing_token_is_said_with_where_it_was_looked_for(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ROTA_TOKEN")
    monkeypatch.chdir(tmp_path)
    ran = rota("jobs")
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    for place in ("ROTA_TOKEN", str(tmp_path / ".rota/local.json"), "rota/local.json"):
        assert place in ran.err


def test_a_wrong_token_is_said_with_where_it_came_from(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", "wrong")
    message = rota("jobs").err
    assert "does not accept the token from ROTA_TOKEN: " in message
    assert "Authorization" not in message


def test_a_local_server_is_found_by_itself(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ROTA_URL")
    monkeypatch.delenv("ROTA_TOKEN")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".rota").mkdir()
    known = {"url": server.url, "token": TOKEN, "data": str(tmp_path), "pid": 1}
    (tmp_path / ".rota/local.json").write_text(json.dumps(known))
    assert rota("stats").status == 0


def test_a_refusal_is_the_servers_own_words(server: SmallServer, rota: Rota) -> None:
    job = server.add_job(status="succeeded")
    ran = rota("cancel", job.job_id)
    assert ran.err == f"rota: job {job.job_id} has ended: it cannot be cancelled\n"


def test_an_id_that_fits_several_jobs_names_them(server: SmallServer, rota: Rota) -> None:
    one, other = server.add_job(), server.add_job()
    ran = rota("show", one.job_id[:8])
    assert ran.status == 1
    assert one.job_id in ran.err
    assert other.job_id in ran.err


@pytest.mark.parametrize("typed", ["abc", "not-an-id", "ffffffffff"])
def test_an_unknown_id_is_reported(server: SmallServer, rota: Rota, typed: str) -> None:
    server.add_job()
    ran = rota("show", typed)
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert typed in ran.err


def test_an_unknown_command_gets_a_suggestion(rota: Rota) -> None:
    ran = rota("job")
    assert ran.status == 2
    assert "Did you mean 'jobs'?" in ran.err


def test_a_store_that_is_not_there_is_said(rota: Rota) -> None:
    ran = rota("server", "--port", "0", "--store", "postgresql://127.0.0.1:9/rota")
    assert ran.status == 1
    assert "cannot connect: PostgreSQL at 127.0.0.1:9/rota" in ran.err


def test_a_server_that_others_could_not_find_is_not_started(rota: Rota) -> None:
    dsn = "postgresql://127.0.0.1:9/rota"
    ran = rota("server", "--port", "0", "--host", "0.0.0.0", "--insecure", "--store", dsn)
    assert ran.status == 1
    assert "--address URL" in ran.err
    wrong = rota("server", "--store", dsn, "--address", "a.example:7070")
    assert wrong.status == 2
    assert "https://a.example:7070" in wrong.err


def rota_process(*args: str, server: SmallServer, **pipes: int) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "ROTA_URL": server.url, "ROTA_TOKEN": TOKEN}
    # Without a buffer Python does not notice that the rest of a large write was not taken.
    environ.pop("PYTHONUNBUFFERED", None)
    return subprocess.Popen([sys.executable, "-m", "rota", *args], env=environ, **pipes)


def test_ctrl_c_ends_a_command_without_an_error(server: SmallServer) -> None:
    process = rota_process("stream", server=server, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    server.on_stream = lambda: process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (out, err.strip()) == (b"", b"")


def test_a_closed_pipe_ends_a_command_without_an_error(server: SmallServer) -> None:
    for i in range(300):
        server.add_job(f"job-{i}")
    process = rota_process(
        "jobs", "--all", "--json", server=server, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_an_argument_that_is_no_utf8_is_named_in_one_line(server: SmallServer, rota: Rota) -> None:
    ran = rota("submit", "--name", os.fsdecode(b"caf\xe9"), "--", "true")
    assert ran.status == 1
    assert ran.err == "rota: 'caf\\udce9' cannot be written as utf-8: surrogates not allowed\n"


@pytest.mark.parametrize("url", ["http://[x", "http://a:x", "http://a\x01b"])
def test_an_invalid_server_address_is_reported_in_one_line(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("ROTA_URL", url)
    ran = rota("jobs")
    assert ran.status == 1
    assert ran.err == f"rota: {url!r} is not the address of a server: write http://host:port\n"


@pytest.mark.parametrize("url", ["http//x", "nonsense", "ftp://a.example", "http://", "http://a b"])
def test_a_worker_with_an_address_that_is_none_does_not_start(rota: Rota, url: str) -> None:
    ran = rota("worker", "--server", "http://127.0.0.1:9", "--server", url)
    assert ran.status == 2
    assert f"{url!r} is not the address of a server: write http://host:port" in ran.err
