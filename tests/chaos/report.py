"""Report of a chaos run: journal, figures, one timeline of everything."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import asyncpg

from rota.store.journal import decode_record
from rota.store.protocol import Epoch, JournalRecord, Seq
from rota.verify.checkers import broken_promises
from rota.verify.history import History
from tests.chaos.chaos_run import FaultRecord
from tests.chaos.leader_changes import LeaderChange, leader_changes

NEAR_MS = 1_000
"""A change of leader so soon after a fault was mended is still its doing."""
OF_POSTGRES = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) UTC (.*)")


@dataclass(slots=True)
class Report:
    history: History
    journal: Sequence[JournalRecord]
    faults: Sequence[FaultRecord]
    missed: Counter[str] = field(default_factory=Counter)

    def broken(self) -> list[str]:
        self.history.journal = self.journal
        return broken_promises(self.history)

    def text(self) -> str:
        """A report: the faults, and how long there was no leader."""
        kinds = Counter(fault.kind for fault in self.faults)
        runs = sum(len(record.executions) for record in self.history.jobs)
        began = sum(line.event == "begin" for line in self.history.lines)
        states = Counter(record.status for record in self.history.jobs)
        lines = [
            f"{len(self.faults)} faults of {len(kinds)} kinds ({sum(self.missed.values())} missed)",
            *(f"  {count:4} {kind}" for kind, count in sorted(kinds.items())),
            f"{len(self.history.jobs)} jobs: {_counted(states)}",
            f"{runs} executions, {began} of them seen to begin by their own account",
            f"{len(self.journal)} journal records, {self._epochs()} epochs",
            "from a leader's last record to its successor's first work:",
            *self._failovers(),
        ]
        return "\n".join(lines)

    def _epochs(self) -> int:
        return len(Counter(record.epoch for record in self.journal))

    def _failovers(self) -> Iterator[str]:
        gaps: defaultdict[str, list[float]] = defaultdict(list)
        every: list[float] = []
        for handover in leader_changes(self.journal):
            if handover.working is not None:
                gap_s = (handover.working - handover.silent_from) / 1000
                gaps[self._cause(handover)].append(gap_s)
                every.append(gap_s)
        for cause, found in (*sorted(gaps.items()), ("in all", every)):
            if found:
                yield f"  {len(found):4} {cause}: p50 {median(found):.1f} s, max {max(found):.1f} s"

    def _cause(self, handover: LeaderChange) -> str:
        for slack_ms in (0, NEAR_MS):
            kinds = [
                fault.kind
                for fault in self.faults
                if not fault.kind.startswith("worker")
                if fault.began <= handover.opened <= fault.ended + slack_ms
            ]
            if kinds:
                return " + ".join(dict.fromkeys(kinds))
        return "nobody's doing"

    def keep(self, folder: Path, log_of: Mapping[str, str]) -> Path:
        """Writes a timeline of all events and log lines."""
        journal = "\n".join(map(str, self.journal))
        (folder / "journal.txt").write_text(journal)
        moments = [*_logged(folder, log_of), *self._told()]
        path = folder / "timeline.txt"
        path.write_text(
            "\n".join(f"{_clock(at)} {who:>12} {text}" for at, who, text in sorted(moments))
        )
        return path

    def _told(self) -> Iterator[tuple[int, str, str]]:
        for fault in self.faults:
            yield fault.began, "injector", f"{fault.kind} …"
            yield fault.ended, "injector", f"{fault.kind}: {fault.effect}"
        for handover in leader_changes(self.journal):
            yield handover.opened, "journal", f"epoch {handover.epoch} opens"


def _counted(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _logged(folder: Path, log_of: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    for path in sorted(folder.glob("said-*")):
        for line in path.read_text("utf-8", "replace").splitlines():
            with_time = _json_line(line)
            if with_time is not None:
                yield with_time[0], log_of.get(path.name, path.name), with_time[1]
    database = folder / "postgres.log"
    if database.exists():
        for found in OF_POSTGRES.finditer(database.read_text("utf-8", "replace")):
            at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
            yield int(at.timestamp() * 1000), "postgres", found[2]


def _json_line(line: str) -> tuple[int, str] | None:
    try:
        entry = json.loads(line)
        at = datetime.fromisoformat(entry.pop("timestamp"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    text = " ".join(f"{name}={value}" for name, value in entry.items())
    return int(at.timestamp() * 1000), text


def journal_of(dsn: str) -> list[JournalRecord]:
    return asyncio.run(_read_journal(dsn))


async def _read_journal(dsn: str) -> list[JournalRecord]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT seq, epoch, at, body, hash FROM rota.journal ORDER BY seq"
        )
    finally:
        await connection.close(timeout=5)
    return [
        JournalRecord(Seq(seq), Epoch(epoch), at, decode_record(body), newest)
        for seq, epoch, at, body, newest in rows
    ]
