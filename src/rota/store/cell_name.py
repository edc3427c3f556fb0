"""A cell's name: given once, kept for good, the same for all its servers."""

from __future__ import annotations

from rota.store.protocol import StoreError


class CellNameError(StoreError):
    """The store is another cell than the one that was named."""


def agreed_cell_name(known: str, given: str) -> str:
    """The cell's name; refuses a server that thinks it serves another."""
    if given not in ("", known):
        raise CellNameError(
            f"this store is the cell {known!r} and stays so, for its ids carry that name:"
            f" start this server with --cell {known}, or give the cell {given!r} a store of its own"
        )
    return known
