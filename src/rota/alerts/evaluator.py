"""Evaluates alert rules on the leader and sends notifications, beside the engine, never in a turn.

Settings and state are notes in the store, so the next leader continues from them. A notification is
stored before it is sent and removed after: a leader that dies in between may send it twice, never
not at all.

Why: docs/decisions/0026-alerts-and-traces-beside-the-turn.md.
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

SETTINGS_KEY = "alerts.book"  # stored: an old word for the settings
STATE_KEY = "alerts.state"
NEVER = 1 << 62
PAUSE_S_MIN = 0.05
T = TypeVar("T")


class SavedAlerts(msgspec.Struct):
    """State of the evaluator that survives a change of the leader. It is stored by field name."""

    board: AlertState = msgspec.field(default_factory=AlertState)
    """The state of all rules."""
    outbox: Outbox = msgspec.field(default_factory=Outbox)


_encode = msgspec.msgpack.Encoder().encode


class AlertEvaluator:
    """Evaluates the rules and delivers notifications while this server leads."""

    def __init__(
        self, brain: Brain, sampler: Sampler, notes: Notes, sender: NotificationSender
    ) -> None:
        self._brain = brain
        self._sampler = sampler
        self._notes = notes
        self._sender = sender
        self._epoch: int | None = None
        """The epoch in which the notes were read; None: they must be read."""
        self._led = 0
        """The newest epoch in which this server led."""
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._outbox_changed = asyncio.Event()
        self.settings = AlertSettings()
        self.saved = SavedAlerts()
        self.history = SampleHistory()
        self.findings: dict[str, Finding | None] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._evaluate_periodically(), name="rota-alerts"),
            asyncio.create_task(self._deliver_periodically(), name="rota-alert-delivery"),
        ]

    async def stop(self) -> None:
        """Stops both tasks; notifications that are not sent yet are stored already."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def open(self) -> None:
        """Reads the notes, unless they were read in this epoch."""
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
                # Another server led, or this one has just started: its samples have a gap.
                self.history = SampleHistory()
                self.findings = {}
                if board.leader not in ("", leader):
                    self.history.leader_changes.append(self._brain.clock.steady())
            board.epoch, board.leader = epoch, leader
            await self._notes.put(STATE_KEY, _encode(self.saved))
            self._epoch = self._led = epoch
            self._outbox_changed.set()

    def firing(self) -> list[AlertRule]:
        """Lists the rules that fire now, silenced or not."""
        states = self.saved.board.places
        found = [(rule, states.get(rule.name)) for rule in self.settings.all_rules()]
        return [rule for rule, state in found if state and state.state is RuleStatus.FIRING]

    async def change(self, changed: Callable[[AlertSettings], AlertSettings]) -> AlertSettings:
        """Changes the settings; they are durable when it returns."""
        await self.open()
        async with self._lock:
            settings = changed(self.settings)
            await self._notes.put(SETTINGS_KEY, _encode(settings))
            for name in self.settings.channels:
                if name not in settings.channels:
                    self.saved.outbox.forget(name)
            self.settings = settings
        return settings

    async def try_channel(self, channel: str, notification: Notification) -> None:
        """Sends a notification to one channel now and keeps the result; raises DeliveryError."""
        entry, error = OutboxEntry(channel, notification), ""
        try:
            await self._sender.send(
                self.settings.channels[channel], notification, self._brain.clock.now()
            )
        except DeliveryError as caught:
            error = str(caught)[:ERROR_CHARS_MAX]
            raise
        finally:
            async with self._lock:
                self.saved.outbox.tried(entry, self._brain.clock.now(), error)
                await self._notes.put(STATE_KEY, _encode(self.saved))

    async def try_rule(self, rule: AlertRule) -> Finding | None:
        """Evaluates a rule now without changing anything; None: there is too little data yet."""
        await self.open()
        await self._brain.settled()
        sample = self._sampler.sample((rule.queue,) if rule.queue else ())
        return evaluate_rule(rule, self.history.with_one_more(sample))

    async def evaluate(self) -> None:
        """Evaluates all rules once, if this server leads."""
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
            made = self.saved.board.advance(self.settings, self.findings, self._brain.clock.now())
            self.saved.outbox.put(made, self.settings)
            if made or before != self.saved.board.fingerprint():
                await self._notes.put(STATE_KEY, _encode(self.saved))
        for one in made:
            log.warning("alert", rule=one.rule, status=one.news.value, message=one.said)
        if made:
            self._outbox_changed.set()

    async def deliver(self) -> None:
        """Sends what is due, if this server leads; channels do not wait for each other."""
        if self._epoch is None or not self._brain.standing().leads:
            return
        async with self._lock:  # an evaluation under way has stored its notifications by then
            due = self.saved.outbox.due(self._brain.clock.now())
        if due:
            await asyncio.gather(*(self._send(entry) for entry in due))

    async def _send(self, entry: OutboxEntry) -> None:
        channel = self.settings.channels.get(entry.channel)
        outbox = self.saved.outbox
        if channel is None:
            outbox.drop(entry)
            return
        now = self._brain.clock.now()
        try:
            await self._sender.send(channel, entry.notice, now)
            outbox.delivered(entry, self._brain.clock.now())
        except DeliveryError as error:
            reason = str(error)[:ERROR_CHARS_MAX]
            about = {"rule": entry.notice.rule, "channel": channel.name, "reason": reason}
            if outbox.failed(entry, now, reason):
                log.warning("notification_not_sent", **about)
            else:
                log.error("notification_dropped", **about)
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
            pause_ms = min((entry.due_at - now for entry in waiting), default=NEVER)
            with contextlib.suppress(TimeoutError):
                pause_s = min(max(pause_ms / 1000, PAUSE_S_MIN), LOOK_S)
                async with asyncio.timeout(pause_s):
                    await self._outbox_changed.wait()


async def _try(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except (StoreError, UnavailableError) as error:
        log.warning("alerts_not_evaluated", reason=str(error))
    except Exception:  # the loop's top: it goes on after any error
        log.exception("alerts_not_evaluated")


def _decoded(body: bytes | None, kind: type[T]) -> T | None:
    return None if body is None else msgspec.msgpack.decode(body, type=kind)
