"""How a job stands to its deadline, in a line."""

from __future__ import annotations

from rota.cli.text import age, local, span
from rota.wire.jobs import DeadlineView


def deadline_line(deadline: DeadlineView, now: int) -> str:
    """By when, the verdict, and how much is left."""
    left = span(abs(deadline.slack))
    spare = f"{left} to spare" if deadline.slack >= 0 else f"{left} too late"
    words = deadline.verdict.replace("_", " ")
    return f"by {local(deadline.finish_by)} ({age(deadline.finish_by, now)}): {words}, {spare}"
