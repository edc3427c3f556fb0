"""Evaluates alert rules on the leader: samples, judges, remembers, notifies. Runs beside the
engine, never in a turn.

What people set and what was sent are notes in the store, so the next leader goes on from there.
A notification is written down before it is sent and struck out after: a leader that dies in
between may send it twice, never not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog

from rota.alerts.conditions import Finding, SampleHistory, Sampler, evaluate_rule
from rota.alerts.limits import ERROR_CHARS_MAX, LOOK_S
from rota.alerts.notifier import DeliveryError, NotificationSender, Outbox, OutboxEntry
from rota.alerts.rules import AlertRule, AlertSettings
from rota.alerts.state import AlertState, Notification, RuleStatus
from rota.engine.ports import Brain, UnavailableError
from rota.store.documents import Notes
from rota.store.protocol import StoreError

log = structlog.get_logger("rota.alerts")

SETTINGS_KEY = "alerts.book"
STATE_KEY = "alerts.state"
NEVER = 1 << 62
PAUSE_S_MIN = 0.05
T = TypeVar("T")


class SavedAlerts(msgspec.Struct):
    """What the watch itself remembers through a change of the leader."""

    board: AlertState = msgspec.field(default_factory=AlertState)
    outbox: Outbox = msgspec.field(default_factory=Outbox)


_encode = msgspec.msgpack.Encoder().encode


class AlertEvaluator:
    """One for each server; it acts only while its server leads."""

    def __init__(
        self, brain: Brain, watcher: Sampler, notes: Notes, post: NotificationSender
    ) -> None:
        self._brain = brain
        self._sampler = watcher
        self._notes = notes
        self._sender = post
        self._epoch: int | None = None
        """The leadership for which the notes were read; None: they have to be."""
        self._led = 0
        """The last leadership of this server."""
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._outbox_changed = asyncio.Event()
        self.settings = AlertSettings()
        self.saved = SavedAlerts()
        self.history = SampleHistory()
        self.findings: dict[str, Finding | None] = {}

    def start(self) -> None:
        """From now on."""
        self._tasks = [
            asyncio.create_task(self._evaluate_periodically(), name="rota-alerts"),
            asyncio.create_task(self._deliver_periodically(), name="rota-alerts-post"),
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
            self.settings = (
                _decoded(await self._notes.get(SETTINGS_KEY), AlertSettings) or AlertSettings()
            )
            self.saved = _decoded(await self._notes.get(STATE_KEY), SavedAlerts) or SavedAlerts()
            board, leader = self.saved.board, self._brain.standing().leader or ""
            if board.epoch != self._led:
                # Somebody else led, or this server has just started: what it saw is no whole.
                self.history = SampleHistory()
                self.findings = {}
                if board.leader not in ("", leader):
                    self.history.leader_changes.append(self._brain.clock.steady())
            board.epoch, board.leader = epoch, leader
            await self._notes.put(STATE_KEY, _encode(self.saved))
            self._epoch = self._led = epoch
            self._outbox_changed.set()

    def firing(self) -> list[AlertRule]:
        """The rules that fire now, silenced or not."""
        places = self.saved.board.places
        found = [(rule, places.get(rule.name)) for rule in self.settings.all_rules()]
        return [rule for rule, place in found if place and place.state is RuleStatus.FIRING]

    async def change(self, changed: Callable[[AlertSettings], AlertSettings]) -> AlertSettings:
        """Sets something; durable when it returns."""
        await self.open()
        async with self._lock:
            book = changed(self.settings)
            await self._notes.put(SETTINGS_KEY, _encode(book))
            for gone in [name for name in self.settings.channels if name not in book.channels]:
                self.saved.outbox.forget(gone)
            self.settings = book
        return book

    async def try_channel(self, channel: str, notice: Notification) -> None:
        """Sends it to one address, now, and remembers what came of it; raises NotTakenError."""
        letter, error = OutboxEntry(channel, notice), ""
        try:
            await self._sender.send(
                self.settings.channels[channel], notice, self._brain.clock.now()
            )
        except DeliveryError as caught:
            error = str(caught)[:ERROR_CHARS_MAX]
            raise
        finally:
            async with self._lock:
                self.saved.outbox.tried(letter, self._brain.clock.now(), error)
                await self._notes.put(STATE_KEY, _encode(self.saved))

    async def try_rule(self, rule: AlertRule) -> Finding | None:
        """What it would find now; None: nothing can be said yet. Changes nothing."""
        await self.open()
        await self._brain.settled()
        look = self._sampler.sample((rule.queue,) if rule.queue else ())
        return evaluate_rule(rule, self.history.with_one_more(look))

    async def evaluate(self) -> None:
        """Once, if this server leads."""
        if not self._brain.standing().leads:
            self._epoch = None
            return
        await self.open()
        await self._brain.settled()
        rules = self.settings.all_rules()
        self.history.add(self._sampler.sample(rule.queue for rule in rules if rule.queue))
        self.findings = {
            rule.name: evaluate_rule(rule, self.history) for rule in rules if rule.enabled
        }
        async with self._lock:
            before = self.saved.board.fingerprint()
            notices = self.saved.board.advance(
                self.settings, self.findings, self._brain.clock.now()
            )
            self.saved.outbox.put(notices, self.settings)
            if notices or before != self.saved.board.fingerprint():
                await self._notes.put(STATE_KEY, _encode(self.saved))
        for notice in notices:
            log.warning("alert", rule=notice.rule, status=notice.news.value, message=notice.said)
        if notices:
            self._outbox_changed.set()

    async def deliver(self) -> None:
        """Sends what is due, if this server leads; addresses do not wait for each other."""
        if self._epoch is None or not self._brain.standing().leads:
            return
        async with self._lock:  # what a look has just found is written down by then
            due = self.saved.outbox.due(self._brain.clock.now())
        if due:
            await asyncio.gather(*(self._send(letter) for letter in due))

    async def _send(self, letter: OutboxEntry) -> None:
        channel = self.settings.channels.get(letter.channel)
        outbox = self.saved.outbox
        if channel is None:
            outbox.drop(letter)
            return
        now = self._brain.clock.now()
        try:
            await self._sender.send(channel, letter.notice, now)
            outbox.delivered(letter, self._brain.clock.now())
        except DeliveryError as error:
            reason = str(error)[:ERROR_CHARS_MAX]
            about = {"rule": letter.notice.rule, "channel": channel.name, "reason": reason}
            if outbox.failed(letter, now, reason):
                log.warning("alert_not_told", **about)
            else:
                log.error("alert_given_up", **about)
        async with self._lock:
            if outbox is self.saved.outbox:
                await self._notes.put(STATE_KEY, _encode(self.saved))

    async def _evaluate_periodically(self) -> None:
        while True:
            await _try(self.evaluate)
            await asyncio.sleep(LOOK_S)

    async def _deliver_periodically(self) -> None:
        while True:
            await _try(self.deliver)
            self._outbox_changed.clear()
            waiting = self.saved.outbox.due(NEVER)
            now = self._brain.clock.now()
            pause_ms = min((letter.due_at - now for letter in waiting), default=NEVER)
            with contextlib.suppress(TimeoutError):
                pause_s = min(max(pause_ms / 1000, PAUSE_S_MIN), LOOK_S)
                async with asyncio.timeout(pause_s):
                    await self._outbox_changed.wait()


async def _try(deed: Callable[[], Awaitable[None]]) -> None:
    try:
        await deed()
    except (StoreError, UnavailableError) as error:
        log.warning("alerts_not_watched", reason=str(error))
    except Exception:  # the loop's top: whatever it was, look again
        log.exception("alerts_not_watched")


def _decoded(body: bytes | None, kind: type[T]) -> T | None:
    return None if body is None else msgspec.msgpack.decode(body, type=kind)
