"""Fencing: keeps a stale execution from writing, by SQL with which a database refuses it.

A worker can lose its lease while a function runs, and another worker starts the job again. Rota
refuses the reports of the first one, but only the database can refuse its writes. Each execution
has a higher `ctx.fence` than all before it, so store the highest one in the row that is written:

    UPDATE invoices SET total = :total, last_fence = :fence
    WHERE id = :id AND last_fence < :fence

If no row was changed, a newer execution has written: `check_written` then ends the function. With
`<` each execution may write a row once; use `<=` where it writes the same row several times.
"""

from __future__ import annotations

from rota.sdk.context import Context, current_context
from rota.sdk.job_exceptions import Fail


class StaleError(Fail):
    """A newer execution of the same job has written already, so a retry is useless."""


def check_written(rows: int, ctx: Context | None = None) -> None:
    """Raises StaleError if a fenced UPDATE changed no row: pass the cursor's `rowcount`."""
    context = ctx or current_context()
    if rows == 0:
        text = f"job {context.job_id}: a newer execution than fence {context.fence} wrote this"
        raise StaleError(f"{text} already, or the row is not there")
