"""Reads of many rows that leave out damaged ones: one of them must not hide all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

import structlog
from msgspec.structs import replace

from rota.store.errors import DamagedRowError
from rota.store.limits import DAMAGED_ROWS_NOTED
from rota.store.queries import Page

log = structlog.get_logger("rota.store")

T = TypeVar("T")


class Damage:
    """Damaged rows that a read left out."""

    def __init__(self) -> None:
        self.rows: list[DamagedRowError] = []

    def note(self, error: DamagedRowError) -> None:
        """Notes one more; the caller leaves it out."""
        self.rows.append(error)

    @property
    def named(self) -> list[tuple[str, str]]:
        """Kind and key of each."""
        return [(one.what, one.key) for one in self.rows]

    def whole(self, read: Callable[[Any], T], found: Iterable[Any]) -> list[T]:
        """Returns the records of all rows that are whole."""
        records: list[T] = []
        for row in found:
            try:
                records.append(read(row))
            except DamagedRowError as error:
                self.note(error)
        return records


class LimitedQuery(Protocol):
    """Query for a page that begins behind a place, `before`."""

    @property
    def limit(self) -> int:
        """The number of results on a page."""
        ...


Q = TypeVar("Q", bound=LimitedQuery)


class WholePages:
    """Pages of whole rows. Logs each damaged row once."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str], None] = {}

    async def read(
        self,
        query: Q,
        find: Callable[[Q], Awaitable[Page[Any]]],
        record: Callable[[Any], T],
        place: Callable[[Any], Any],
    ) -> Page[T]:
        """Returns a page that has as many results as it would have without damaged rows.

        Callers take a short page for the last one. `place` is where a page ends that ends with this
        row.
        """
        page: Page[T] = Page()
        while True:
            found, damage = await find(query), Damage()
            page += damage.whole(record, found)
            for error in damage.rows:
                self._log(error)
            if not damage.rows or found.rest is not None or len(found) < query.limit:
                page.rest = found.rest
                return page
            rest: Any = {"before": place(found[-1]), "limit": len(damage.rows)}
            query = replace(query, **rest)  # type: ignore[type-var]

    def _log(self, error: DamagedRowError) -> None:
        noted = self._noted
        if (error.what, error.key) not in noted and len(noted) < DAMAGED_ROWS_NOTED:
            noted[(error.what, error.key)] = None
            log.error("stored_row_damaged", reason=str(error))
