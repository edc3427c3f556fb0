"""What the doctor looks at in a PostgreSQL: whether it is there, its schema, what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rota.cli.options import now_ms
from rota.cli.text import plural
from rota.cli.trials.checks import Check
from rota.store.postgres.checkup import Checkup, check_up
from rota.store.protocol import StoreError
from rota.store.protocols.durability import Durability, DurabilityLevel

FAILOVER_LEASE = "60s"
"""A failover of the database takes up to half a minute; leases must outlast it with room."""


def store_checks(dsn: str) -> Iterator[Check]:
    """Everything, in the order in which things depend on each other."""
    try:
        found = asyncio.run(check_up(dsn))
    except StoreError as error:
        yield Check("store", "fail", str(error), "check the address, and that it is the primary")
        return
    yield Check("store", "ok", f"{found.shown}, version {found.version}")
    yield schema_check(found)
    yield from durability_checks(found.durability)
    yield clock_check(found, now_ms())


def schema_check(found: Checkup) -> Check:
    """Whether this program finds the tables it knows."""
    if not found.missing:
        return Check("schema", "ok", "up to date")
    text = f"{plural(len(found.missing), 'step')} missing: {', '.join(found.missing)}"
    return Check("schema", "warn", text, "rota migrate --store DSN")


def durability_checks(durability: Durability) -> Iterator[Check]:
    """What an accepted job survives, and what that asks of the leases."""
    level = durability.level
    if level is DurabilityLevel.SINGLE:
        yield Check(
            "durable", "ok", f"{level}: accepted jobs survive what the database's disk does"
        )
    elif level is DurabilityLevel.ASYNC_HA:
        yield Check(
            "durable",
            "warn",
            f"{level}: a failover of the database may lose the last accepted jobs",
            "let commits wait for a standby (synchronous_standby_names, Patroni: synchronous_mode)",
        )
    else:
        yield Check("durable", "ok", f"{level}: accepted jobs survive a failover of the database")
    for warning in durability.warnings:
        yield Check("durable", "warn", warning, "see postgresql.conf")
    if level is not DurabilityLevel.SINGLE:
        # Jobs are stopped by their own workers when nobody renews their leases.
        text = (
            f"running jobs outlast a failover if servers have --lease-ttl {FAILOVER_LEASE} or more"
        )
        yield Check("leases", "ok", text)


def clock_check(found: Checkup, here_ms: int) -> Check:
    """For information: no decision compares the two clocks."""
    apart_s = (here_ms - found.clock) / 1000
    return Check(
        "clock",
        "ok",
        f"{abs(apart_s):.1f} s {'ahead of' if apart_s > 0 else 'behind'} the database's",
    )
