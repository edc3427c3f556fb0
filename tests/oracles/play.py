"""Plays stories against the core of this tree, and writes the outcome of each turn as bytes.

Depends on values alone: records are taken by position, as they are stored; other structs are told
as lists of their fields. A text with a blank in it stands for itself only by being there, so that
the wording of a message may change. Run as a module: `play SCRIPTS OUT`, both MessagePack.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from tests.oracles import core_under_test as core

RECORDS_BEHIND = 3
"""Records by which the tables are behind the journal for a reader that need not wait."""
TICKS_MAX = 150
BROKEN = ["an invariant did not hold"]
JOB_FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")
EXECUTION_LIVE = ("claimed", "running")
# Positions in stored records.
SPEC_ORDER, SPEC_REVISION, SPEC_GROUP = 3, 10, 14
TERMS_NEEDS = 4
SPEC_FINISH_BY, SPEC_KEPT = 13, (11, 12, 14)
"""An update keeps which schedule or trigger a job is of, and its group."""
LIFE_STATE, LIFE_LINE = 0, 17
EXECUTION_JOB, EXECUTION_WORKER, EXECUTION_FENCE, EXECUTION_STATE = 1, 2, 4, 5


def at(record: Sequence[Any], place: int, default: Any = None) -> Any:
    """Returns a field by its position; defaults at the end are left out in storage."""
    return record[place] if place < len(record) else default


def stored(value: Any) -> Any:
    """Converts a record to plain lists, as it is stored."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def flat(value: Any) -> Any:
    """Converts an outcome to plain lists, without names of classes and fields."""
    code = core.refusal_code(value)
    if code is not None:
        return ["refused", code]
    if isinstance(value, msgspec.Struct):
        if value.__struct_config__.array_like:
            return masked(stored(value))
        fields = [getattr(value, name) for name in value.__struct_fields__]
        defaults = value.__struct_defaults__
        while fields and defaults and fields[-1] == defaults[-1]:
            fields, defaults = fields[:-1], defaults[:-1]
        return [flat(one) for one in fields]
    if isinstance(value, Mapping):
        return [[name, flat(one)] for name, one in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [flat(one) for one in value]
    return masked(value)


def masked(value: Any) -> Any:
    """Replaces every text that is made of words."""
    if isinstance(value, str) and " " in value:
        return "a text"
    if isinstance(value, bytes) and b" " in value:
        return b"a text"
    if isinstance(value, list):
        return [masked(one) for one in value]
    return value


class Tables:
    """Records that were written and not dropped, by position."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Any]] = {}
        self.executions: dict[str, list[Any]] = {}
        self.by_name: dict[str, dict[Any, Any]] = {
            tag: {} for tag in ("w", "q", "k", "s", "c", "t", "v", "h", "te", "rt")
        }
        self.policy: Any = None
        self.order_next = 1
        self._behind: deque[list[Any]] = deque()
        self._spilled: dict[str, list[Any]] = {}

    def append(self, writes: Iterable[Any]) -> None:
        """Applies one record of the journal."""
        plain = [stored(write) for write in writes]
        for tag, *fields in plain:
            self._apply(tag, fields)
        self._behind.append(plain)
        self._catch_up(RECORDS_BEHIND)

    def _catch_up(self, but: int) -> None:
        while len(self._behind) > but:
            for tag, *fields in self._behind.popleft():
                if tag in ("j", "jb", "m", "dj"):
                    self._spilled.pop(fields[0], None)
                if tag in ("j", "jb") and at(fields[2], LIFE_LINE, 0):
                    self._spilled[fields[0]] = fields

    def _apply(self, tag: str, fields: list[Any]) -> None:
        first = fields[0]
        if tag in ("j", "jb"):
            self.jobs[first] = fields
            self.order_next = max(self.order_next, at(fields[1], SPEC_ORDER, 0) + 1)
        elif tag == "m":
            self.jobs[first] = [first, self.jobs[first][1], fields[1]]
        elif tag == "dj":
            del self.jobs[first]
            kept = self.executions.items()
            self.executions = {i: x for i, x in kept if x[EXECUTION_JOB] != first}
        elif tag == "e":
            self.executions[first[0]] = first
        else:
            self._apply_other(tag, first, fields)

    def _apply_other(self, tag: str, first: Any, fields: list[Any]) -> None:
        if tag == "po":
            self.policy = first
        elif tag == "ms":
            before = self.by_name["s"][first]
            self.by_name["s"][first] = [*before[:2], fields[1], *before[3:]]
        elif tag in ("dw", "ds", "dc", "dt"):
            # Made and dropped in one turn: never put.
            self.by_name[tag[1]].pop(first, None)
        elif tag == "rh":
            for one in first:
                del self.by_name["h"][one]
        elif tag in self.by_name:
            key = (first[0], first[1]) if tag == "rt" else first[0]
            self.by_name[tag][key] = first

    def named(self, tag: str) -> list[Any]:
        """Returns records of a kind in the order of writing."""
        return list(self.by_name[tag].values())

    def live(self, *, ended: bool = False) -> list[list[Any]]:
        """Returns jobs that have not ended (or have), in order of arrival."""
        found = [job for job in self.jobs.values() if (job[2][0] in JOB_FINAL) is ended]
        return sorted(found, key=lambda job: int(at(job[1], SPEC_ORDER, 0)))

    def running(self) -> list[list[Any]]:
        """Returns executions that have not ended."""
        return [x for x in self.executions.values() if x[EXECUTION_STATE] in EXECUTION_LIVE]

    def spilled(self, line: int, after: int, limit: int, *, exact: bool) -> list[list[Any]]:
        """Returns the next jobs of a spill queue."""
        self._catch_up(0 if exact else RECORDS_BEHIND)
        found = [job for job in self._spilled.values() if at(job[2], LIFE_LINE, 0) == line]
        found = [job for job in found if at(job[1], SPEC_ORDER, 0) > after]
        return sorted(found, key=lambda job: int(at(job[1], SPEC_ORDER, 0)))[:limit]

    def everything(self, kept: int) -> dict[str, Any]:
        """Returns a scheduler's input, with the first `kept` jobs of each spill queue."""
        lines: dict[int, list[str]] = {}
        for job in self.live():
            if line := at(job[2], LIFE_LINE, 0):
                lines.setdefault(line, []).append(job[0])
        away = {one for ids in lines.values() for one in ids[kept:]}
        return {
            "jobs": [job for job in self.live() if job[0] not in away],
            "lines": [[line, len(ids)] for line, ids in lines.items()],
            "executions": self.running(),
            "workers": self.named("w"),
            "queues": self.named("q"),
            "order_next": self.order_next,
            "schedules": sorted(self.named("s")),
            "calendars": self.named("c"),
            "triggers": sorted(self.named("t")),
            "held": sorted(self.named("h"), key=lambda one: (one[4], one[0])),
            "policy": self.policy,
            "tenants": self.named("te"),
            "runtimes": self.named("rt"),
        }


class Player:
    """Plays one story."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.now: int = script["start"]
        self.core = core.Core(script["spill"], script["policy"], self.now)
        self.tables = Tables()
        self.polls = 0
        self.open: dict[str, int] = {}
        self.outcomes: list[bytes] = []

    def play(self, script: Mapping[str, Any]) -> list[bytes]:
        """Returns the outcome of each turn."""
        for turn in script["turns"]:
            outcome = self._turn(turn)
            self.outcomes.append(msgspec.msgpack.encode(outcome))
        self.core.check()
        return self.outcomes

    def _turn(self, turn: Mapping[str, Any]) -> list[Any]:
        self.now += turn["ms"] + turn.get("set_clock", 0)
        if "restart" in turn:
            self.core.restart(self.tables.everything(self.core.kept), self.now)
            return self._step([core.command("tick", {})])
        if "advance" in turn:
            return self._advance(turn["advance"])
        outcome = self._step([self._command(one) for one in turn["do"]])
        if self.tables.jobs and "why" in turn:
            job = self._one(self.tables.live() or self.tables.live(ended=True), turn["why"])
            outcome.append(self.core.why(job, self.now))
        return outcome

    def _advance(self, ms: int) -> list[Any]:
        end, outcomes = self.now + ms, []
        for _ in range(TICKS_MAX):
            due = self.core.next_due()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            outcomes += self._step([core.command("tick", {})])
        self.now = max(self.now, end)
        return outcomes + self._step([core.command("tick", {})])

    def _step(self, commands: list[Any]) -> list[Any]:
        """Plays a turn, and those that the store's answers cause."""
        outcomes: list[Any] = []
        while commands:
            try:
                outcome = self.core.turn(commands, self.now)
            except AssertionError:
                # As the engine does: memory is dropped and loaded again.
                self.core.restart(self.tables.everything(self.core.kept), self.now)
                return [*outcomes, BROKEN]
            fields = [getattr(outcome, name) for name in outcome.__struct_fields__]
            self.tables.append(fields[1])
            outcomes.append(flat(outcome))
            commands = [self._refilled(one) for one in fields[6]]
        return outcomes

    def _refilled(self, wanted: msgspec.Struct) -> Any:
        fields = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
        line, after, limit, _, _, exact = fields.values()
        jobs = self.tables.spilled(line, after, limit, exact=exact)
        return core.command("refilled", {"refill": fields, "jobs": jobs})

    # What a script names by number

    def _one(self, among: Sequence[Any], number: int) -> Any:
        return among[number % len(among)]

    def _command(self, scripted: Mapping[str, Any]) -> Any:
        fields = {name: value for name, value in scripted.items() if name != "cmd"}
        name = scripted["cmd"]
        if "job" in fields:
            return self._about_job(name, fields)
        if name in ("poll", "heartbeat", "close_poll"):
            return self._of_worker(name, fields)
        if "execution" in fields:
            return self._about_execution(name, fields)
        if name in ("submit", "reject"):
            return core.command(name, {**fields, **self._recalled(fields.get("key"))})
        if name == "receive_events":
            known = {(one[1], one[2]): one for one in self.tables.named("v")}
            repeated = [known[e[0], e[1]] for e in fields["events"] if (e[0], e[1]) in known]
            return core.command(name, {**fields, "recall": {"at": self.now, "told": repeated}})
        return self._about_noun(name, fields)

    def _about_noun(self, name: str, fields: dict[str, Any]) -> Any:
        for kind, tag in (("schedule", "s"), ("trigger", "t")):
            number = fields.get(kind)
            if isinstance(number, int):
                del fields[kind]
                among = sorted(self.tables.named(tag))
                if not among:
                    return core.command("tick", {})
                record = self._one(among, number)
                fields[f"{kind}_id"] = record[0]
                if name.startswith("update"):
                    part = fields["plan" if kind == "schedule" else "rule"]
                    part[0] = record[1][0]
                    fields["revision"] = at(record, 5, 1)
                if "backfill" in name:
                    fields["recall"] = {"at": self.now}
        if name == "cancel_backfill" or name.startswith(("delete", "purge", "trigger")):
            fields.setdefault("recall", {"at": self.now})
        return core.command(name, fields)

    def _recalled(self, key: Mapping[str, str] | None) -> dict[str, Any]:
        ended = [*self.tables.live(ended=True)]
        away = [job for job in self.tables.live() if at(job[2], LIFE_LINE, 0)]
        used = None if key is None else self.tables.by_name["k"].get(key["key"])
        return {"recall": {"at": self.now, "jobs": [*ended, *away], "key": used}}

    def _about_job(self, name: str, fields: dict[str, Any]) -> Any:
        if not self.tables.jobs:
            return core.command("tick", {})
        ended = self.tables.live(ended=True)
        jobs = ended if name == "retry" and ended else list(self.tables.jobs.values())
        job = self._one(jobs, fields.pop("job"))
        fields |= {"job_id": job[0], **self._recalled(None)}
        if name == "update":
            revision = at(job[1], SPEC_REVISION, 0) - fields.pop("late")
            kept = [at(job[1], place) for place in SPEC_KEPT]
            head, finish_by = fields["spec"][:SPEC_REVISION], fields["spec"][SPEC_FINISH_BY]
            head[0] = self._with_copies(head[0], job[1][0])
            fields["spec"] = [*head, revision, *kept[:2], finish_by, kept[2]]
        if name == "retry" and (at(job[1], SPEC_GROUP) or [""])[0] == "a":
            fields["failed"] = self._failed_members(job[0])
        return core.command(name, fields)

    def _with_copies(self, terms: list[Any], before: list[Any]) -> list[Any]:
        """Keeps a gang's size."""
        needs, copies = terms[TERMS_NEEDS], at(before[TERMS_NEEDS], 3, 1)
        padded = [*needs, *((), None)[len(needs) - 1 :]][:3]
        return [*terms[:TERMS_NEEDS], [*padded, copies], *terms[TERMS_NEEDS + 1 :]]

    def _failed_members(self, parent: str) -> list[int]:
        found = []
        for job in self.tables.jobs.values():
            group = at(job[1], SPEC_GROUP) or [""]
            if group[0] == "m" and group[1] == parent and job[2][LIFE_STATE] != "succeeded":
                found.append(group[2])
        return sorted(found)

    def _about_execution(self, name: str, fields: dict[str, Any]) -> Any:
        running = self.tables.running()
        if not running:
            return core.command("tick", {})
        execution = self._one(running, fields["execution"])
        if name == "progress":
            named = {**self._running(execution), "progress": fields["progress"]}
            return core.command(name, {"running": named})
        ended = self._ended(execution, fields["end"])
        ended["fence"] -= fields["stale"]
        return core.command(name, {"completion": ended})

    def _running(self, execution: list[Any]) -> dict[str, Any]:
        return {"execution_id": execution[0], "fence": execution[EXECUTION_FENCE]}

    def _ended(self, execution: list[Any], end: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._running(execution), **end}

    def _of_worker(self, name: str, fields: dict[str, Any]) -> Any:
        worker = fields["worker_id"]
        if name == "close_poll":
            return core.command(name, {**fields, "poll_id": self.open.get(worker, 0)})
        held = [x for x in self.tables.running() if x[EXECUTION_WORKER] == worker]
        names = fields.pop("names")
        named = {"all": held, "some": held[::2], "none": None}[names]
        executions = None if named is None else [self._running(x) for x in named]
        fields["executions"] = executions
        if name == "poll":
            self.polls += 1
            self.open[worker] = self.polls
            ends = fields.pop("ends")
            pairs = [(x, ends[number % len(ends)]) for number, x in enumerate(held)]
            fields["completed"] = [self._ended(x, end) for x, end in pairs if end is not None]
            fields |= {"poll_id": self.polls, "until": self.now + fields.pop("wait_ms")}
        return core.command(name, fields)


def play(script: Mapping[str, Any]) -> list[bytes]:
    """Plays a story; returns the outcome of each turn."""
    return Player(script).play(script)


def digest(outcomes: Sequence[bytes]) -> str:
    """Hashes a story's outcomes."""
    return blake2b(b"".join(outcomes), digest_size=12).hexdigest()


def main() -> None:
    scripts = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes())
    played = {seed: play(script) for seed, script in scripts.items()}
    Path(sys.argv[2]).write_bytes(msgspec.msgpack.encode(played))


if __name__ == "__main__":
    main()
