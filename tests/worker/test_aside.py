"""What an execution says beside its report."""

from __future__ import annotations

import asyncio

from rota.worker.masking import Secrets
from rota.worker.runners.aside import ExecutionOutput
from tests.worker.orders import order
from tests.worker.site import Sink

TASK = {"kind": "noop"}


async def test_secrets_are_hidden_in_words_on_progress_too() -> None:
    heard: list[tuple[str, float, str | None]] = []
    aside = ExecutionOutput(
        order("e1", TASK), Sink(), Secrets(["hunter22"]), lambda *said: heard.append(said)
    )
    aside.progressed(0.5, "logged in with hunter22")
    assert heard == [("e1", 0.5, "logged in with ***")]
    aside.close()


async def test_who_said_nothing_has_nothing_to_flush_and_no_tail() -> None:
    aside = ExecutionOutput(order("e1", TASK), Sink(), Secrets(()), lambda *_: None)
    await aside.flush(asyncio.Event())
    assert aside.tail() == ""
    assert aside.unsent_log is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_log_that_the_server_does_not_take_is_left_when_nobody_waits_any_more() -> None:
    sink, at_once = Sink(), asyncio.Event()
    sink.open.clear()
    aside = ExecutionOutput(order("e1", TASK), sink, Secrets(()), lambda *_: None)
    aside.printed(b"a line\n")
    flushing = asyncio.create_task(aside.flush(at_once))
    await asyncio.sleep(0)
    at_once.set()
    await flushing
    aside.close()
    assert aside.unsent_log is not None
    sink.open.set()
    await aside.unsent_log
    assert bytes(sink.log) == b"a line\n"
