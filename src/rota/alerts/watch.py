"""The leader's watch: looks, judges, remembers, tells. Runs beside the engine, never in a turn.

What people set and what was told are notes in the store, so the next leader goes on from there. A
notice is written down before it is sent and struck out after: a leader that dies in between may
send it twice, never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog

from rota.alerts.board import Board, Notice, State
from rota.alerts.channels import NotTakenError, Post
from rota.alerts.conditions import Finding, judge
from rota.alerts.figures import History, Watcher
from rota.alerts.limits import ERROR_CHARS_MAX, LOOK_S
from rota.alerts.outbox import Letter, Outbox
from rota.alerts.rules import Book, Rule
from rota.engine.ports import Brain, UnavailableError
from rota.store.protocol import StoreError
from rota.store.protocols.notes import Notes

log = structlog.get_logger("rota.alerts")

BOOK = "alerts.book"
STATE = "alerts.state"
NEVER = 1 << 62
PAUSE_S_MIN = 0.05
T = TypeVar("T")


class Kept(msgspec.Struct):
    """What the watch itself remembers through a change of the leader."""

    board: Board = msgspec.field(default_factory=Board)
    outbox: Outbox = msgspec.field(default_factory=Outbox)


_encode = msgspec.msgpack.Encoder().encode


class Watch:
    """One for each server; it acts only while its server leads."""

    def __init__(self, brain: Brain, watcher: Watcher, notes: Notes, post: Post) -> None:
        self._brain = brain
        self._watcher = watcher
        self._notes = notes
        self._post = post
        self._epoch: int | None = None
        """The leadership for which the notes were read; None: they have to be."""
        self._led = 0
        """The last leadership of this server."""
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._letters = asyncio.Event()
        self.book = Book()
        self.kept = Kept()
        self.history = History()
        self.findings: dict[str, Finding | None] = {}

    def start(self) -> None:
        """From now on."""
        self._tasks = [
            asyncio.create_task(self._look_on(), name="rota-alerts"),
            asyncio.create_task(self._deliver_on(), name="rota-alerts-post"),
        ]

    async def stop(self) -> None:
        """What was not told yet is written down already."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def open(self) -> None:
        """Reads what was set and told, if that has not been done for this leadership."""
        async with self._lock:
            if not self._brain.ready:
                raise UnavailableError(f"not ready: {self._brain.trouble}")
            epoch = self._brain.epoch
            if self._epoch == epoch:
                return
            self.book = _decoded(await self._notes.get(BOOK), Book) or Book()
            self.kept = _decoded(await self._notes.get(STATE), Kept) or Kept()
            board, leader = self.kept.board, self._brain.standing().leader or ""
            if board.epoch != self._led:
                # Somebody else led, or this server has just started: what it saw is no whole.
                self.history = History()
                self.findings = {}
                if board.leader not in ("", leader):
                    self.history.leaders.append(self._brain.clock.steady())
            board.epoch, board.leader = epoch, leader
            await self._notes.put(STATE, _encode(self.kept))
            self._epoch = self._led = epoch
            self._letters.set()

    def firing(self) -> list[Rule]:
        """The rules that fire now, silenced or not."""
        places = self.kept.board.places
        found = [(rule, places.get(rule.name)) for rule in self.book.all_rules()]
        return [rule for rule, place in found if place and place.state is State.FIRING]

    async def change(self, changed: Callable[[Book], Book]) -> Book:
        """Sets something; durable when it returns."""
        await self.open()
        async with self._lock:
            book = changed(self.book)
            await self._notes.put(BOOK, _encode(book))
            for gone in [name for name in self.book.channels if name not in book.channels]:
                self.kept.outbox.forget(gone)
            self.book = book
        return book

    async def try_channel(self, channel: str, notice: Notice) -> None:
        """Sends it to one address, now, and remembers what came of it; raises NotTakenError."""
        letter, error = Letter(channel, notice), ""
        try:
            await self._post.send(self.book.channels[channel], notice, self._brain.clock.now())
        except NotTakenError as caught:
            error = str(caught)[:ERROR_CHARS_MAX]
            raise
        finally:
            async with self._lock:
                self.kept.outbox.tried(letter, self._brain.clock.now(), error)
                await self._notes.put(STATE, _encode(self.kept))

    async def try_rule(self, rule: Rule) -> Finding | None:
        """What it would find now; None: nothing can be said yet. Changes nothing."""
        await self.open()
        await self._brain.settled()
        look = self._watcher.look((rule.queue,) if rule.queue else ())
        return judge(rule, self.history.with_one_more(look))

    async def look(self) -> None:
        """Once, if this server leads."""
        if not self._brain.standing().leads:
            self._epoch = None
            return
        await self.open()
        await self._brain.settled()
        rules = self.book.all_rules()
        self.history.add(self._watcher.look(rule.queue for rule in rules if rule.queue))
        self.findings = {rule.name: judge(rule, self.history) for rule in rules if rule.enabled}
        async with self._lock:
            before = self.kept.board.mark()
            notices = self.kept.board.look(self.book, self.findings, self._brain.clock.now())
            self.kept.outbox.put(notices, self.book)
            if notices or before != self.kept.board.mark():
                await self._notes.put(STATE, _encode(self.kept))
        for notice in notices:
            log.warning("alert", rule=notice.rule, status=notice.news.value, message=notice.said)
        if notices:
            self._letters.set()

    async def deliver(self) -> None:
        """Sends what is due, if this server leads; addresses do not wait for each other."""
        if self._epoch is None or not self._brain.standing().leads:
            return
        async with self._lock:  # what a look has just found is written down by then
            due = self.kept.outbox.due(self._brain.clock.now())
        if due:
            await asyncio.gather(*(self._carry(letter) for letter in due))

    async def _carry(self, letter: Letter) -> None:
        channel = self.book.channels.get(letter.channel)
        outbox = self.kept.outbox
        if channel is None:
            outbox.drop(letter)
            return
        now = self._brain.clock.now()
        try:
            await self._post.send(channel, letter.notice, now)
            outbox.taken(letter, self._brain.clock.now())
        except NotTakenError as error:
            reason = str(error)[:ERROR_CHARS_MAX]
            about = {"rule": letter.notice.rule, "channel": channel.name, "reason": reason}
            if outbox.failed(letter, now, reason):
                log.warning("alert_not_told", **about)
            else:
                log.error("alert_given_up", **about)
        async with self._lock:
            if outbox is self.kept.outbox:
                await self._notes.put(STATE, _encode(self.kept))

    async def _look_on(self) -> None:
        while True:
            await _try(self.look)
            await asyncio.sleep(LOOK_S)

    async def _deliver_on(self) -> None:
        while True:
            await _try(self.deliver)
            self._letters.clear()
            waiting = self.kept.outbox.due(NEVER)
            now = self._brain.clock.now()
            pause_ms = min((letter.due_at - now for letter in waiting), default=NEVER)
            with contextlib.suppress(TimeoutError):
                pause_s = min(max(pause_ms / 1000, PAUSE_S_MIN), LOOK_S)
                async with asyncio.timeout(pause_s):
                    await self._letters.wait()


async def _try(deed: Callable[[], Awaitable[None]]) -> None:
    try:
        await deed()
    except (StoreError, UnavailableError) as error:
        log.warning("alerts_not_watched", reason=str(error))
    except Exception:  # the loop's top: whatever it was, look again
        log.exception("alerts_not_watched")


def _decoded(body: bytes | None, kind: type[T]) -> T | None:
    return None if body is None else msgspec.msgpack.decode(body, type=kind)
