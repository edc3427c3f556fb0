"""Orders and answers as a server would send them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from rota.wire.jobs import RequirementsView
from rota.wire.workers import LeaseAnswer, OrderView, RegisterAnswer

TTL = 15.0


def order(execution_id: str, task: object = None, **changes: object) -> OrderView:
    """Makes an order for a noop unless `task` says otherwise."""
    view = OrderView(
        execution_id=execution_id,
        job_id=f"job-of-{execution_id}",
        attempt=1,
        fence=7,
        name="test",
        queue="default",
        task=msgspec.Raw(msgspec.json.encode(task or {"kind": "noop"})),
        payload=msgspec.Raw(b"{}"),
        requirements=RequirementsView(1, 0, 0, 0, {}, []),
        timeout=None,
        lease_expires_in=TTL,
        scheduled_at="2026-01-01T00:00:00.000Z",
    )
    return msgspec.structs.replace(view, **changes)


def python(code: str) -> dict[str, object]:
    """A command task that runs Python code."""
    return {"kind": "command", "argv": [sys.executable, "-c", code]}


def shell(script: str) -> dict[str, object]:
    """A command task that runs a shell script."""
    return {"kind": "command", "argv": ["/bin/sh", "-c", script]}


def answer(
    *orders: OrderView,
    held_for: float = 0.0,
    cancel: Sequence[str] = (),
    lost: Sequence[str] = (),
) -> LeaseAnswer:
    """Makes the answer of a lease call."""
    return LeaseAnswer(list(orders), held_for, list(cancel), list(lost))


def registration(ttl: float = TTL, spare_max: int = 100, *, patient: bool = True) -> RegisterAnswer:
    """Makes the answer of a registration."""
    return RegisterAnswer("worker-1", "session-1", ttl / 3, ttl, ttl / 3, spare_max, patient)
