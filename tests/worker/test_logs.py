"""Output on its way: bounded whatever happens, in order, and honest about gaps."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from rota.worker.backoff import delay_s
from rota.worker.diary import open_diary
from rota.worker.logs import LogBuffer
from rota.worker.runners.pipes import parse_progress

CAP, HALF = 2000, 300


def drain(buffer: LogBuffer) -> bytes:
    sent = b""
    while chunk := buffer.take(64):
        sent += chunk
    return sent


@given(st.lists(st.tuples(st.binary(max_size=500), st.booleans()), max_size=30))
def test_output_stays_below_the_cap_and_starts_and_ends_as_printed(
    pieces: list[tuple[bytes, bool]],
) -> None:
    buffer = LogBuffer(cap=CAP, half=HALF)
    sent, printed = b"", b""
    for piece, is_sent in pieces:
        buffer.add(piece)
        printed += piece
        if is_sent:
            sent += drain(buffer)
    buffer.close()
    sent += drain(buffer)
    assert len(sent) <= CAP
    if len(printed) <= HALF:
        assert sent == printed
    assert sent[:HALF] == printed[:HALF]
    assert sent.endswith(printed[-HALF:])
    if sent != printed:
        assert b"[rota: " in sent


def test_a_gap_names_how_much_is_missing() -> None:
    buffer = LogBuffer(cap=100_000, half=HALF)
    buffer.add(b"a" * HALF + b"b" * 1000 + b"c" * HALF)
    line = b"\n[rota: 1000 bytes left out here: output came faster than it could be sent]\n"
    assert drain(buffer) == b"a" * HALF + line + b"c" * HALF


def test_a_full_log_waits_for_the_end_to_show_the_end() -> None:
    buffer = LogBuffer(cap=CAP, half=HALF)
    sent = b""
    for number in range(100):
        buffer.add(f"{number:04}".encode() * 25)
        sent += drain(buffer)
    assert b"rota" not in sent
    buffer.close()
    rest = drain(buffer)
    assert b"the log is full" in rest
    assert rest.endswith(b"0099")


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
def test_waits_grow_to_a_cap_and_differ_between_workers_not_between_runs(
    seed: str, attempt: int, cap: float
) -> None:
    delay = delay_s(seed, attempt, cap)
    assert 0.05 <= delay <= cap
    assert delay == delay_s(seed, attempt, cap)
    assert attempt < 12 or delay >= cap / 2


def test_two_workers_do_not_come_back_at_once() -> None:
    assert len({delay_s(f"worker-{number}", 9, 5.0) for number in range(100)}) == 100


def test_the_diary_is_json_where_nobody_watches() -> None:
    page = io.StringIO()
    open_diary(page).warning("something", worker_id="w1")
    line = json.loads(page.getvalue())
    assert (line["event"], line["level"], line["worker_id"]) == ("something", "warning", "w1")
