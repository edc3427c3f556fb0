"""Records at hand: only the next stretch of the journal, or nothing."""

from __future__ import annotations

from rota.store.projection.unfolded import Unfolded
from rota.store.protocol import Epoch, JournalRecord, Seq
from tests.store.conformance import put


def _holding(*seqs: int) -> Unfolded:
    unfolded = Unfolded()
    for seq in seqs:
        unfolded.add(JournalRecord(Seq(seq), Epoch(1), seq, [put(seq), put(seq + 100)]))
    return unfolded


def _after(unfolded: Unfolded, folded: int, most_writes: int = 1000) -> list[int]:
    return [record.seq for record in unfolded.after(Seq(folded), most_writes)]


def test_a_stretch_goes_on_after_what_is_folded() -> None:
    unfolded = _holding(4, 5, 6)
    assert _after(unfolded, 3) == [4, 5, 6]
    assert _after(unfolded, 4) == [5, 6]


def test_a_stretch_ends_with_the_record_that_makes_it_wide_enough() -> None:
    unfolded = _holding(4, 5, 6)
    assert _after(unfolded, 3, most_writes=3) == [4, 5]
    assert _after(unfolded, 3, most_writes=1) == [4]


def test_a_stretch_whose_beginning_somebody_else_wrote_is_not_at_hand() -> None:
    assert _after(_holding(4, 5), 2) == []


def test_a_stretch_ends_where_somebody_else_wrote() -> None:
    assert _after(_holding(4, 5, 7), 3) == [4, 5]


def test_what_was_folded_is_forgotten_though_it_is_asked_for_again() -> None:
    unfolded = _holding(4, 5)
    _after(unfolded, 4)
    assert _after(unfolded, 3) == []


def test_a_memory_that_was_thrown_away_has_nothing() -> None:
    unfolded = _holding(4)
    unfolded.clear()
    assert _after(unfolded, 3) == []
