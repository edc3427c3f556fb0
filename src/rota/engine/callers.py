"""Those who wait for the loop: inputs not stepped yet, and workers' open polls."""

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
    """An input and whoever waits for its receipt."""

    event: AnyInput
    future: asyncio.Future[AnyReceipt] | None = None
    entry: int | None = None
    """Where it came from in the store's inbox: it leaves there when the input is durable."""


class OpenPoll(NamedTuple):
    """A worker that waits for its answer."""

    future: asyncio.Future[PollAnswer]
    clerk: AnswerEncoder | None


class Callers:
    """Everybody gets an answer: the one that was decided, or an error to ask again."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._inbox: deque[Pending] = deque()
        self._in_turn: Sequence[Pending] = ()
        self._polls: dict[PollId, OpenPoll] = {}
        self._poll_ids = count(1)

    @property
    def waiting(self) -> bool:
        """Whether there is something to step."""
        return bool(self._inbox)

    def put(self, pending: Pending, *, always: bool = False) -> None:
        """One more; `always` past the limit, for what makes work less."""
        limit = self._limits.inbox_max
        if len(self._inbox) >= limit and not always:
            raise BusyError(f"{limit} requests are waiting already; slow down")
        self._inbox.append(pending)

    def next_poll_id(self) -> PollId:
        """A number no other poll of this process has."""
        return PollId(next(self._poll_ids))

    def open_poll(self, poll_id: PollId, clerk: AnswerEncoder | None) -> asyncio.Future[PollAnswer]:
        """What ends when the poll is answered."""
        future: asyncio.Future[PollAnswer] = asyncio.get_running_loop().create_future()
        self._polls[poll_id] = OpenPoll(future, clerk)
        return future

    def close_poll(self, poll_id: PollId) -> None:
        """Nobody waits any more."""
        poll = self._polls.pop(poll_id, None)
        if poll is not None and poll.future.done() and not poll.future.cancelled():
            poll.future.exception()  # the caller has heard of it another way

    def drain(self) -> list[AnyInput]:
        """The next turn's inputs."""
        batch: list[Pending] = []
        weight = 0
        while self._inbox and weight < self._limits.turn_weight_max:
            pending = self._inbox.popleft()
            batch.append(pending)
            weight += _weight(pending.event)
        self._in_turn = batch
        return [pending.event for pending in batch]

    def consumed(self, outcome: Outcome) -> list[int]:
        """Entries of the store's inbox that the turn takes; a refused one comes as a Reject."""
        replies = outcome.replies[len(outcome.replies) - len(self._in_turn) :]
        return [
            pending.entry
            for pending, reply in zip(self._in_turn, replies, strict=True)
            if pending.entry is not None and not isinstance(reply, Refusal)
        ]

    def dictate(self, outcome: Outcome) -> None:
        """Has answers to workers put into words in the loop's next round: what they say is on its
        way to the disk then, and nobody has anything else to do for them."""
        if outcome.answers:
            asyncio.get_running_loop().call_soon(self._dictate, outcome.answers)

    def _dictate(self, answers: Sequence[PollAnswer]) -> None:
        for answer in answers:
            waiting = self._polls.get(answer.poll_id)
            if waiting is not None and waiting.clerk is not None:
                waiting.clerk.write(answer)

    def release(self, outcome: Outcome) -> None:
        """Tells the workers what to do, and the turn's callers what was decided.

        In this order: a job starts sooner by the time that its submitter's answer takes. Words that
        are ready leave here; all else is done by those who are told, in the loop's next round.
        """
        batch, self._in_turn = self._in_turn, ()
        for answer in outcome.answers:
            waiting = self._polls.get(answer.poll_id)
            if waiting is not None and not waiting.future.done():
                if waiting.clerk is not None:
                    waiting.clerk.post(answer)
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
        """Returns when those who were told have gone on, unless more is to be decided.

        They do so in the loop's next round, at the end of which this returns: before anybody new
        is heard.
        """
        if not self._inbox:
            await asyncio.sleep(0)

    def fail(self, error: Exception) -> None:
        """Tells everybody to ask again, those of the turn under way too."""
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
    """How much of a turn it takes."""
    if isinstance(event, Poll):
        return 1 + len(event.completed)
    if isinstance(event, Submit | Refilled):
        return len(event.jobs)
    return len(event.events) if isinstance(event, ReceiveEvents) else 1
