"""Duration of a change of leader: from the old leader's last record to the new one's first work."""

from __future__ import annotations

from rota.core.model import Execution, ExecutionId, ExecutionState, JobId, WorkerId
from rota.core.outcome import AnyWrite, PutExecution
from rota.store.protocol import Epoch, JournalRecord, Seq
from tests.chaos.leader_changes import leader_changes

GIVEN_OUT = PutExecution(
    Execution(
        ExecutionId("a1"), JobId("a"), WorkerId("w"), 1, 1, ExecutionState.CLAIMED, claimed_at=0
    )
)


def test_a_change_of_leader_lasts_from_the_last_record_to_the_first_work() -> None:
    bodies: list[tuple[int, list[AnyWrite]]] = [
        (1, [GIVEN_OUT]),
        (1, []),
        (2, []),
        (2, []),
        (2, [GIVEN_OUT]),
    ]
    journal = [
        JournalRecord(Seq(place), Epoch(epoch), 1_000 * place, writes, bytes(16))
        for place, (epoch, writes) in enumerate(bodies, start=1)
    ]
    (found,) = leader_changes(journal)
    assert (found.epoch, found.silent_from, found.opened, found.working) == (2, 2_000, 3_000, 5_000)
