"""Logs on their way: bounded in every case, in order, with gaps that are named."""

from __future__ import annotations

import asyncio
import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from rota.sdk.backoff import delay_s
from rota.wire.limits import JOB_LOG_BYTES
from rota.worker.agent import open_agent_log
from rota.worker.logs import NEWEST_BYTES, WAITING_BYTES, LogBuffer, LogPump
from rota.worker.masking import Secrets
from rota.worker.runners.output_channels import parse_progress
from rota.worker.server_client import AwayError

CAP, WAITING = 4000, 600
NEWEST = CAP // 4


def drain(buffer: LogBuffer) -> bytes:
    sent = b""
    while chunk := buffer.take(64):
        sent += chunk
    return sent


def left_out(text: bytes) -> int:
    """What the marks in a text say is missing."""
    found = re.findall(rb"([\d,]+) bytes left out", text)
    return sum(int(number.replace(b",", b"")) for number in found)


@given(st.lists(st.tuples(st.binary(max_size=900), st.booleans()), max_size=30))
def test_a_log_stays_below_its_limit_and_starts_and_ends_as_printed(
    pieces: list[tuple[bytes, bool]],
) -> None:
    buffer = LogBuffer(cap=CAP, waiting=WAITING)
    sent, printed = b"", b""
    for piece, is_sent in pieces:
        buffer.add(piece)
        printed += piece
        if is_sent:
            sent += drain(buffer)
    buffer.close()
    sent += drain(buffer)
    assert len(sent) <= CAP
    assert sent[:WAITING] == printed[:WAITING]
    if len(printed) <= WAITING + NEWEST:
        assert sent == printed
    if sent != printed:
        rest = sent.rpartition(b" \xe2\x80\xa6]\n")[2]
        assert printed.endswith(rest)
        marks = re.sub(rb"\n?\[\xe2\x80\xa6 [^\n]* \xe2\x80\xa6\]\n", b"", sent)
        assert len(marks) + left_out(sent) in range(len(printed) - 3, len(printed) + 1)


def test_a_log_with_a_gap_says_how_much_is_missing_and_goes_on_with_a_whole_line() -> None:
    buffer = LogBuffer(cap=100_000, waiting=600)
    buffer.add(b"a" * 599 + b"\n" + b"b" * 5000 + b"\n" + b"c" * 24_000)
    assert buffer.backlogged
    buffer.add(b"\n" + b"d" * 2000)
    sent = drain(buffer)
    assert sent.startswith(b"a" * 599 + b"\n[\xe2\x80\xa6 ")
    assert b"bytes left out: they came faster than the server took them" in sent
    assert sent.endswith(b"d" * 2000)
    assert not buffer.backlogged


def test_a_full_log_says_so_at_once_and_shows_its_end_at_the_end() -> None:
    buffer = LogBuffer(cap=CAP, waiting=WAITING)
    sent = b""
    for number in range(100):
        buffer.add(f"{number:04}\n".encode() * 20)
        sent += drain(buffer)
    assert sent.endswith("[… the log is full: its end follows when the job has ended …]\n".encode())
    assert sent.startswith(b"0000\n")
    buffer.close()
    rest = drain(buffer)
    assert left_out(rest) > 0
    assert rest.startswith(f"[… {left_out(rest):,} bytes left out …]\n00".encode())
    assert rest.endswith(b"0099\n")
    kept = sum(line[:1] == b"0" for line in (sent + rest).splitlines())
    assert kept * 5 + left_out(rest) in range(100 * 20 * 5, 100 * 20 * 5 + 5)


def test_output_without_line_feeds_is_cut_between_characters() -> None:
    buffer = LogBuffer(cap=CAP, waiting=WAITING)
    buffer.add("ä".encode() * 5000 + b"!")
    buffer.close()
    sent = drain(buffer)
    text = sent.rpartition(b"]\n")[2]
    assert text.decode() == "ä" * (len(text) // 2) + "!"
    assert len(text) in range(NEWEST - 3, NEWEST + 1)


def test_a_hundred_megabytes_of_output_take_little_memory() -> None:
    buffer = LogBuffer()
    piece = b"0123456789abcde\n" * 4096
    sent = held = 0
    for _ in range(1600):
        buffer.add(piece)
        while buffer.backlogged:
            sent += len(buffer.take(256 * 1024))
        held = max(held, len(buffer._next) + len(buffer._newest))
    buffer.close()
    rest = drain_at_once(buffer)
    assert held <= 3 * 1024 * 1024
    assert sent + len(rest) <= JOB_LOG_BYTES
    assert sent + len(rest) > JOB_LOG_BYTES - 64 * 1024
    assert left_out(rest) > 85_000_000
    assert rest.endswith(piece[-1000:])


def drain_at_once(buffer: LogBuffer) -> bytes:
    return b"".join(iter(lambda: buffer.take(256 * 1024), b""))


def test_a_log_of_which_nothing_is_kept_still_says_how_much_there_was() -> None:
    buffer = LogBuffer(cap=0)
    buffer.add(b"x" * 1000)
    assert left_out(drain(buffer)) == 0
    buffer.close()
    assert drain(buffer) == "[… 1,000 bytes left out …]\n".encode()


class Server:
    """Takes logs when it is there."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.there = asyncio.Event()
        self.asked = asyncio.Event()

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        self.asked.set()
        if not self.there.is_set():
            raise AwayError("away")
        self.log[offset:] = chunk


async def test_a_reader_waits_for_a_slow_server_and_not_for_one_that_is_away() -> None:
    server = Server()
    pump = LogPump("e1", 7, server)
    pump.add(b"x" * WAITING_BYTES)
    assert pump.backlogged
    running = asyncio.create_task(pump.run())
    async with asyncio.timeout(20):
        await server.asked.wait()
        while pump.backlogged:  # noqa: ASYNC110  (until the answer has come)
            await asyncio.sleep(0)
    pump.add(b"y" * 3 * NEWEST_BYTES)
    assert not pump.backlogged
    server.there.set()
    pump.end()
    async with asyncio.timeout(20):
        await running
    assert server.log.startswith(b"x" * WAITING_BYTES)
    assert left_out(bytes(server.log)) > 0
    assert server.log.endswith(b"y" * NEWEST_BYTES)


async def test_secrets_are_masked_in_the_log_and_in_its_tail() -> None:
    server = Server()
    server.there.set()
    pump = LogPump("e1", 7, server, Secrets(["hunter2hunter2"]))
    for piece in (b"login hunter2", b"hunt", b"er2 ok\nhunter2hunter"):
        pump.add(piece)
    assert pump.buffer.tail() == "login *** ok"
    pump.end()
    await pump.run()
    assert bytes(server.log) == b"login *** ok\n***"


def test_the_tail_is_the_last_lines_as_text() -> None:
    buffer = LogBuffer()
    buffer.add(b"\xff\n" + b"".join(b"line %d\n" % number for number in range(5000)))
    lines = buffer.tail().splitlines()
    assert lines[-1] == "line 4999"
    assert len(lines) == 20


def test_progress_lines_are_read_and_others_ignored() -> None:
    assert parse_progress(b"0.4 half way") == (0.4, "half way")
    assert parse_progress(b" 1 ") == (1.0, None)
    for line in (b"", b"fast", b"1.5", b"-1", b"nan", b"inf", b"\xff"):
        assert parse_progress(line) is None


@given(st.text(), st.integers(0, 10_000), st.floats(0.2, 60))
def test_retry_delays_grow_to_a_limit_and_differ_between_workers_not_between_runs(
    seed: str, attempt: int, cap: float
) -> None:
    delay = delay_s(seed, attempt, cap)
    assert 0.05 <= delay <= cap
    assert delay == delay_s(seed, attempt, cap)
    assert attempt < 12 or delay >= cap / 2


def test_two_workers_do_not_retry_at_the_same_moment() -> None:
    assert len({delay_s(f"worker-{number}", 9, 5.0) for number in range(100)}) == 100


def test_the_agent_s_log_is_json_where_there_is_no_terminal() -> None:
    page = io.StringIO()
    open_agent_log(page).warning("something", worker_id="w1")
    line = json.loads(page.getvalue())
    assert (line["event"], line["level"], line["worker_id"]) == ("something", "warning", "w1")
