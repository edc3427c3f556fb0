"""Damage to the simulated database: failovers that lose records, flipped bytes, and jobs whose
writes cannot be projected."""

from __future__ import annotations

from collections import deque
from typing import Any

from rota.store.journal import decode_record
from rota.store.protocol import Epoch, Head, JournalRecord, Loss, Seq
from rota.store.rows import Row
from rota.store.sqlite.connect import fetch
from rota.store.sqlite.journal_store import note_loss
from rota.store.sqlite.memory import MemoryJournalStore
from rota.store.sqlite.quarantine import repair
from rota.store.sqlite.set_aside import read_quarantine
from tests.simtest.rng import Rng

DUMPS_KEPT = 16
"""Earlier states of the database to which it may fail over."""
EPOCHS_PER_FAILOVER = 1000
"""By how much the first claim after a failover raises the epoch, as PostgreSQL's store does."""
CHANGES = ("append", "claim", "resign", "put_inbox", "drop_inbox")
"""Calls before which the state of the database is kept."""
_POISON = """
CREATE TRIGGER poison_{event}_{table} BEFORE {event} ON {table} WHEN NEW.{column} LIKE '%{end}'
BEGIN SELECT RAISE(ABORT, 'poisoned'); END
"""
_POISONED = (("insert", "jobs", "id"), ("update", "jobs", "id"), ("insert", "executions", "job_id"))


class DatabaseDamage:
    """Damage to one database, and its repair."""

    def __init__(self, journal: MemoryJournalStore, rng: Rng) -> None:
        self._journal = journal
        self._rng = rng
        self.keeps_dumps = False
        """Whether it will fail over in this run."""
        self.connections = 0
        """How often all connections have broken; a call that was sent before is not carried out."""
        self.losses: list[Loss] = []
        """Losses that servers have recorded."""
        self.flipped: dict[bytes, None] = {}
        """Hashes of the journal records in which a byte is damaged now."""
        self._bodies: dict[bytes, bytes] = {}
        """By hash, the bodies of all records that ever were damaged."""
        self._flips_next = False
        self._failovers = 0
        self._is_unclaimed = False
        """Whether no server has claimed leadership since the last failover."""
        self._poison = ""
        self._dumps: deque[tuple[Seq, bytes]] = deque(maxlen=DUMPS_KEPT)

    # Called for every call to the database

    def note_call(self, name: str) -> None:
        """Keeps the state before a change; not between a failover and the claim that notes it."""
        if self.keeps_dumps and name in CHANGES and not self._is_unclaimed:
            self._dumps.append((self._journal.head().seq, self._journal.dump()))

    def note_done(self, name: str, args: tuple[Any, ...], answer: Any) -> Any:
        """Returns the answer to a call, changed as the damage has it."""
        match name:
            case "append" if self._flips_next:
                self._flips_next = False
                self._flip(answer)
            case "note_loss":
                self.losses.append(args[0])
            case "claim" if self._is_unclaimed:
                return self._claimed_after_failover()
        return answer

    # Failovers

    def fail_over(self, records_max: int) -> tuple[Seq, list[JournalRecord], list[str]]:
        """Goes back to an earlier state, which lacks at most so many records.

        Returns the newest record that is left, those that are lost, and the jobs of lost inbox
        entries.
        """
        journal = self._journal
        before, promised = self._rows(), self._promised()
        at_least = journal.head().seq - records_max
        dump = next((dump for seq, dump in self._dumps if seq >= at_least), None)
        self._dumps.clear()
        self.connections += 1
        self._failovers += 1
        self._is_unclaimed = True
        if dump is not None:
            journal.restore(dump)
            for digest in self._bodies:
                if digest not in self.flipped:
                    self._mend(digest)
            self._renew_poison()
        kept = journal.head().seq
        lost = [
            JournalRecord(
                Seq(seq), epoch, at, decode_record(self._bodies.get(digest) or body), digest
            )
            for seq, epoch, at, digest, body in before
            if seq > kept
        ]
        still = self._promised()
        return kept, lost, [job_id for job_id in promised if job_id not in still]

    def _rows(self) -> list[Row]:
        sql = "SELECT seq, epoch, at, hash, body FROM journal ORDER BY seq"
        return fetch(self._journal.connection, sql)

    def _promised(self) -> dict[str, None]:
        found = fetch(self._journal.connection, "SELECT job_ids FROM inbox")
        return dict.fromkeys(job_id for row in found for job_id in row[0].split())

    def _claimed_after_failover(self) -> Epoch:
        """Does what PostgreSQL's store does when the timeline has changed."""
        self._is_unclaimed = False
        connection = self._journal.connection
        raised = "UPDATE leader SET epoch = epoch + ? RETURNING epoch"
        epoch = fetch(connection, raised, (EPOCHS_PER_FAILOVER - 1,))[0][0]
        note_loss(connection, Loss(0, 0, Seq(-self._failovers)))
        return Epoch(epoch)

    # Flipped bytes

    def flip_next(self) -> None:
        """Flips a byte of the next record, which no follower has read."""
        self._flips_next = True

    def mend(self) -> None:
        """Puts all flipped bytes right."""
        self._flips_next = False
        for digest in list(self.flipped):
            self._mend(digest)
        self.flipped.clear()

    def _flip(self, head: Head) -> None:
        sql = "SELECT body FROM journal WHERE seq = ?"
        body = fetch(self._journal.connection, sql, (head.seq,))[0][0]
        self._bodies[head.hash] = body
        self.flipped[head.hash] = None
        place, bit = self._rng.randrange(len(body)), 1 << self._rng.randrange(8)
        damaged = body[:place] + bytes((body[place] ^ bit,)) + body[place + 1 :]
        self._set_body(head.hash, damaged)

    def _mend(self, digest: bytes) -> None:
        self._set_body(digest, self._bodies[digest])

    def _set_body(self, digest: bytes, body: bytes) -> None:
        self._journal.connection.execute(
            "UPDATE journal SET body = ? WHERE hash = ?", (body, digest)
        )

    # Jobs whose writes cannot be projected

    def poison(self, end: str) -> None:
        """Makes the database refuse the rows of jobs whose ids end so."""
        self._poison = end
        self._renew_poison()

    def cure(self) -> None:
        """Takes the rows again, and repairs the jobs that were set aside."""
        self._poison = ""
        self._renew_poison()
        connection = self._journal.connection
        for job in read_quarantine(connection).values():
            repair(connection, job)

    def _renew_poison(self) -> None:
        connection = self._journal.connection
        for event, table, column in _POISONED:
            connection.execute(f"DROP TRIGGER IF EXISTS poison_{event}_{table}")
            if self._poison:
                connection.execute(
                    _POISON.format(event=event, table=table, column=column, end=self._poison)
                )
