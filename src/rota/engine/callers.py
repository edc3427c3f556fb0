"""Callers that wait for the loop: inputs that are not decided yet, and open polls of workers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from rota.core.commands import AnyInput, Poll, ReceiveEvents, Refilled, Submit
from rota.core.errors import Refusal
from rota.core.model import PollId
from rota.core.outcome import AnyReceipt, Outcome, PollAnswer
from rota.engine.limits import EngineLimits
from rota.engine.ports import AnswerEncoder, BusyError


class Pending(NamedTuple):
    """An input, and the future of the caller that waits for its receipt."""

    event: AnyInput
    future: asyncio.Future[AnyReceipt] | None = None
    entry: int | None = None
    """Its entry in the store's inbox, which is removed when the input is durable."""


class OpenPoll(NamedTuple):
    """A poll of a worker that waits for its answer."""

    future: asyncio.Future[PollAnswer]
    encoder: AnswerEncoder | None


class Callers:
    """Answers every caller: with what was decided, or with an error that asks to try again."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._inbox: deque[Pending] = deque()
        self._in_turn: Sequence[Pending] = ()
        self._polls: dict[PollId, OpenPoll] = {}
        self._poll_ids = count(1)

    @property
    def waiting(self) -> bool:
        """Whether there are inputs to decide."""
        return bool(self._inbox)

    def put(self, pending: Pending, *, always: bool = False) -> None:
        """Queues an input; `always` ignores the limit, for inputs that reduce the load."""
        limit = self._limits.inbox_max
        if len(self._inbox) >= limit and not always:
            raise BusyError(f"{limit} requests are waiting already; slow down")
        self._inbox.append(pending)

    def next_poll_id(self) -> PollId:
        """Returns a number that no other poll of this process has."""
        return PollId(next(self._poll_ids))

    def open_poll(
        self, poll_id: PollId, encoder: AnswerEncoder | None
    ) -> asyncio.Future[PollAnswer]:
        future: asyncio.Future[PollAnswer] = asyncio.get_running_loop().create_future()
        self._polls[poll_id] = OpenPoll(future, encoder)
        return future

    def close_poll(self, poll_id: PollId) -> None:
        """Forgets a poll that nobody waits for any more."""
        poll = self._polls.pop(poll_id, None)
        if poll is not None and poll.future.done() and not poll.future.cancelled():
            poll.future.exception()  # read, or asyncio would log it as never retrieved

    def drain(self) -> list[AnyInput]:
        """Takes the inputs of the next turn, up to the limit of its weight."""
        batch: list[Pending] = []
        weight = 0
        while self._inbox and weight < self._limits.turn_weight_max:
            pending = self._inbox.popleft()
            batch.append(pending)
            weight += _weight(pending.event)
        self._in_turn = batch
        return [pending.event for pending in batch]

    def consumed(self, outcome: Outcome) -> list[int]:
        """Returns the entries of the store's inbox that this turn accepts.

        A refused one stays: it is posted again as a Reject.
        """
        replies = outcome.replies[len(outcome.replies) - len(self._in_turn) :]
        return [
            pending.entry
            for pending, reply in zip(self._in_turn, replies, strict=True)
            if pending.entry is not None and not isinstance(reply, Refusal)
        ]

    def entries_in_turn(self) -> list[int]:
        """Returns the entries of the store's inbox among the inputs of the turn under way."""
        return [pending.entry for pending in self._in_turn if pending.entry is not None]

    def encode_answers(self, outcome: Outcome) -> None:
        """Has answers to workers encoded in the loop's next round, during the append."""
        if outcome.answers:
            asyncio.get_running_loop().call_soon(self._encode_answers, outcome.answers)

    def _encode_answers(self, answers: Sequence[PollAnswer]) -> None:
        for answer in answers:
            waiting = self._polls.get(answer.poll_id)
            if waiting is not None and waiting.encoder is not None:
                waiting.encoder.write(answer)

    def release(self, outcome: Outcome) -> None:
        """Answers the workers' polls, then the callers of the turn.

        In this order a job starts sooner, by the time that its submitter's answer takes. Encoded
        answers leave here; callers do all else themselves, in the loop's next round.
        """
        batch, self._in_turn = self._in_turn, ()
        for answer in outcome.answers:
            waiting = self._polls.get(answer.poll_id)
            if waiting is not None and not waiting.future.done():
                if waiting.encoder is not None:
                    waiting.encoder.post(answer)
                waiting.future.set_result(answer)
        replies = outcome.replies[len(outcome.replies) - len(batch) :]
        for pending, reply in zip(batch, replies, strict=True):
            future = pending.future
            if future is None or future.done():
                continue
            if isinstance(reply, Refusal):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def go_first(self) -> None:
        """Lets answered callers continue before new input is read, unless more is to be decided.

        They continue in the loop's next round, at the end of which this returns.
        """
        if not self._inbox:
            await asyncio.sleep(0)

    def fail(self, error: Exception) -> None:
        """Raises an error in every waiting caller, also in those of the turn under way."""
        _fail((pending.future for pending in (*self._in_turn, *self._inbox)), error)
        _fail((poll.future for poll in self._polls.values()), error)
        self._inbox.clear()


def _fail(
    futures: Iterable[asyncio.Future[AnyReceipt] | asyncio.Future[PollAnswer] | None],
    error: Exception,
) -> None:
    for future in futures:
        if future is not None and not future.done():
            future.set_exception(error)


def _weight(event: AnyInput) -> int:
    """Returns how many jobs, reports or events the input brings."""
    if isinstance(event, Poll):
        return 1 + len(event.completed)
    if isinstance(event, Submit | Refilled):
        return len(event.jobs)
    return len(event.events) if isinstance(event, ReceiveEvents) else 1
