"""What a person sees: run on a terminal of our own making."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from rota.cli.logs import LogWriter
from tests.sdk.fake_server import TOKEN, SmallServer


def on_terminal(server: SmallServer, *args: str, columns: int = 80, **environ: str) -> str:
    """Everything a command writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    said_elsewhere = ("NO_COLOR", "TERM", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if name not in said_elsewhere}
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", *args],
        env={
            **clean,
            "TERM": "xterm-256color",
            "ROTA_URL": server.url,
            "ROTA_TOKEN": TOKEN,
            **environ,
        },
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    parts = []
    while chunk := _read(ours):
        parts.append(chunk)
    os.close(ours)
    assert process.wait(30) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_tables_have_colours_on_a_terminal_unless_asked_not_to(server: SmallServer) -> None:
    server.add_job("a", "failed")
    assert "\x1b[" in on_terminal(server, "jobs")
    assert "\x1b[" not in on_terminal(server, "jobs", NO_COLOR="1")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_table_never_wraps(server: SmallServer, columns: int) -> None:
    server.add_job("a-name-that-is-longer-than-anybody-should-give-it" * 2, queue="q" * 30)
    lines = on_terminal(server, "jobs", columns=columns, NO_COLOR="1").splitlines()
    assert len(lines) == 2
    assert all(len(line) <= columns for line in lines)
    assert server.jobs.popitem()[0][-8:] in lines[1]


def test_control_sequences_in_a_log_are_escaped_on_a_terminal(server: SmallServer) -> None:
    job = server.add_job()
    server.run(job.job_id, b"\x1b]0;owned\x07plain\ttext\r\n\xffend", exit_code=0)
    shown = on_terminal(server, "logs", "-f", job.job_id)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert shown == "\\x1b]0;owned\\x07plain   text\n\\xffend\n".replace("   ", "\t")


def test_a_log_keeps_its_colours_and_no_other_control_sequence(server: SmallServer) -> None:
    job = server.add_job()
    log = b"\x1b[1;31mred\x1b[0m \x1b[2Jgone \x1b[38;5;208morange"
    server.run(job.job_id, log, exit_code=0)
    shown = on_terminal(server, "logs", job.job_id)
    assert shown == "\x1b[1;31mred\x1b[0m \\x1b[2Jgone \x1b[38;5;208morange\x1b[0m\n"
    assert "\x1b" not in on_terminal(server, "logs", job.job_id, NO_COLOR="1")


def test_a_colour_that_is_cut_between_two_reads_stays_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    log = "a\x1b[31mü\x1b[0m\r\nb\x1b".encode()
    whole = "a\x1b[31mü\x1b[0m\nb\\x1b\x1b[0m\n"
    for cut in range(len(log)):
        writer = LogWriter()
        writer.write(log[:cut])
        writer.write(log[cut:])
        writer.finish()
        assert capsys.readouterr().out == whole, cut


def test_control_sequences_in_names_are_escaped_on_a_terminal(server: SmallServer) -> None:
    job = server.add_job("x")
    server.jobs[job.job_id].name = "[red]x[/red]\x1b[2J\u202e"
    shown = on_terminal(server, "jobs", columns=120, NO_COLOR="1")
    assert "[red]x[/red]\\x1b[2J\\u202e" in shown


def test_a_bar_shows_while_jobs_are_submitted(server: SmallServer) -> None:
    shown = on_terminal(server, "submit", "--noop", "--copies", "20")
    assert "20/20" in shown
    assert "submitted 20 jobs" in shown


def test_q_leaves_the_live_view(server: SmallServer) -> None:
    server.add_worker("box-1")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environ = {**os.environ, "TERM": "xterm", "ROTA_URL": server.url, "ROTA_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", "top"], env=environ, stdin=theirs, stdout=theirs
    )
    os.close(theirs)
    seen = b""
    while b"box-1" not in seen:
        seen += _read(ours)
    os.write(ours, b"q")
    while _read(ours):
        pass
    os.close(ours)
    assert process.wait(30) == 0
