"""What becomes of large output files in SQLite when their jobs are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from rota.store.sqlite.connect import fetch

DELETE_LATER = "INSERT OR REPLACE INTO doomed VALUES (?, 0)"


def delete_outputs_later(connection: apsw.Connection, execution_ids: Sequence[Any]) -> None:
    """Their jobs were deleted; in the caller's transaction."""
    sql = f"DELETE FROM objects WHERE execution_id IN ({placeholders(execution_ids)}) RETURNING key"
    for (key,) in fetch(connection, sql, tuple(execution_ids)):
        if key:
            fetch(connection, DELETE_LATER, (key,))


def placeholders(values: Sequence[Any]) -> str:
    """As many question marks."""
    return ", ".join("?" * len(values))
