"""Names of the core that the story player uses: the one file that a rename of the core changes.

Everything else in a story is plain data, told by position as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.commands import (
    BackfillSchedule,
    Cancel,
    CancelBackfill,
    ClockJump,
    ClosePoll,
    Complete,
    CreateSchedule,
    CreateTrigger,
    Delete,
    DeleteCalendar,
    DeleteSchedule,
    DeleteTrigger,
    DeploySchedules,
    DeployTriggers,
    Deregister,
    Drain,
    Execute,
    Heartbeat,
    LeaderPause,
    MemoryWindow,
    PauseSchedule,
    PauseTrigger,
    Poll,
    Progress,
    Purge,
    PutQueueSettings,
    PutTenantSettings,
    ReceiveEvents,
    Refilled,
    Register,
    Reject,
    Resume,
    Retry,
    SetCalendar,
    SetPolicy,
    Submit,
    Tick,
    Timing,
    TriggerSchedule,
    Update,
    UpdateSchedule,
    UpdateTrigger,
)
from rota.core.errors import Refusal
from rota.core.model import JobRecord
from rota.core.outcome import Outcome
from rota.core.policy import PRESETS
from rota.core.restore import Stored
from rota.core.scheduler import Scheduler
from rota.engine.time_zones import load_zone

COMMANDS: Mapping[str, type[msgspec.Struct]] = {
    "absence": LeaderPause,
    "backfill_schedule": BackfillSchedule,
    "cancel": Cancel,
    "cancel_backfill": CancelBackfill,
    "clock_jump": ClockJump,
    "close_poll": ClosePoll,
    "complete": Complete,
    "create_schedule": CreateSchedule,
    "create_trigger": CreateTrigger,
    "delete": Delete,
    "delete_calendar": DeleteCalendar,
    "delete_schedule": DeleteSchedule,
    "delete_trigger": DeleteTrigger,
    "deploy_schedules": DeploySchedules,
    "deploy_triggers": DeployTriggers,
    "drain": Drain,
    "execute": Execute,
    "heartbeat": Heartbeat,
    "leave": Deregister,
    "pause_schedule": PauseSchedule,
    "pause_trigger": PauseTrigger,
    "poll": Poll,
    "progress": Progress,
    "purge": Purge,
    "receive_events": ReceiveEvents,
    "refilled": Refilled,
    "register": Register,
    "reject": Reject,
    "resume": Resume,
    "retry": Retry,
    "set_calendar": SetCalendar,
    "set_policy": SetPolicy,
    "set_queue": PutQueueSettings,
    "set_tenant": PutTenantSettings,
    "submit": Submit,
    "tick": Tick,
    "trigger_schedule": TriggerSchedule,
    "update": Update,
    "update_schedule": UpdateSchedule,
    "update_trigger": UpdateTrigger,
}
"""Commands by the name that stories use."""

FIELDS: Mapping[str, str] = {
    "band": "group",
    "gathering": "buffering",
    "held": "buffered_events",
    "line": "fifo_group",
    "lines": "spill_queues",
    "piece": "refill",
    "plan": "definition",
    "recall": "preloaded",
    "rule": "definition",
    "stimulus": "trigger_origin",
    "told": "accepted_events",
}
"""Fields of commands whose name in the core differs from the player's: the player's first."""


def command(name: str, fields: Mapping[str, Any]) -> Any:
    """Makes a command of plain data."""
    return msgspec.convert(_renamed(fields), COMMANDS[name])


def _renamed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {FIELDS.get(name, name): _renamed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one) for one in value]
    return value


class Core:
    """Core for one story: a scheduler with its timing."""

    def __init__(self, spill: Mapping[str, int] | None, policy: str, now: int) -> None:
        window = MemoryWindow() if spill is None else MemoryWindow(**_renamed(spill))
        self._timing, self._policy = Timing(window=window), PRESETS[policy]
        self.kept = window.fifo_group
        self._new(now)

    def _new(self, now: int) -> None:
        self._scheduler = Scheduler(self._timing, now, load_zone, self._policy)

    def turn(self, commands: list[Any], now: int) -> Outcome:
        """Plays one turn."""
        return self._scheduler.turn(commands, now)

    def next_due(self) -> int | None:
        """Returns when a turn is needed next."""
        return self._scheduler.next_due()

    def restart(self, stored: Mapping[str, Any], now: int) -> None:
        """Builds the scheduler anew from the records."""
        self._new(now)
        self._scheduler.restore(msgspec.convert(_renamed(stored), Stored), now)

    def why(self, job: list[Any], now: int) -> list[str]:
        """Returns the codes of the causes of a job's wait."""
        record = msgspec.convert(job, JobRecord)
        explanation = self._scheduler.why(record.id, now, record)
        return [] if explanation is None else [cause.code for cause in explanation.causes]

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        self._scheduler.check()


def refusal_code(reply: object) -> str | None:
    """Returns the stable code of a refusal; None for every other reply."""
    return reply.code if isinstance(reply, Refusal) else None
