"""Definition of a store: notes."""

from __future__ import annotations

from rota.core.outcome import PutPolicy
from rota.core.policy import Policy
from tests.store.conformance import StoreMaker, leading


class NotesConformance:
    """Notes beside the journal."""

    async def test_a_note_is_kept_and_replaced(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert await store.notes.get("a") is None
            await store.notes.put("a", b"1")
            await store.notes.put("b", b"\x00\xff")
            await store.notes.put("a", b"2")
            assert await store.notes.get("a") == b"2"
            assert await store.notes.get("b") == b"\x00\xff"

    async def test_notes_and_settings_do_not_meet(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.notes.put("", b"no policy at all")
            policy = Policy(beta=7.0)
            await (await leading(store)).append(PutPolicy(policy))
            snapshot = await store.journal.load()
            assert snapshot.settings.policy == policy
            assert await store.notes.get("") == b"no policy at all"
