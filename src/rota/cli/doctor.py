"""Checks an installation or a PostgreSQL store: a line a check, with what to do if it fails."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click
import msgspec

from rota import __version__
from rota.cli.connect import endpoint_of
from rota.cli.options import json_option
from rota.cli.problems import explain
from rota.cli.render import (
    Styled,
    console,
    local,
    now_ms,
    plural,
    print_object,
    rich_text,
    size_text,
)
from rota.sdk import ApiError, Client, Endpoint, Patience, RotaError, UnavailableError, calls
from rota.sdk.methods import admin_calls
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.quarantine import QuarantinedJobView, RepairView
from rota.wire.service import ClusterView, StatsView
from rota.worker.supervisor.client import Supervisor, SupervisorError

if TYPE_CHECKING:
    from rota.store.postgres.durability import Checkup
    from rota.store.protocol import Durability

Verdict: TypeAlias = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, omit_defaults=True):
    """Result of one check."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""


FAILOVER_LEASE = "60s"
"""A failover of the database takes up to half a minute; leases must outlast it by far."""


def store_checks(dsn: str, *, repair: bool = False) -> Iterator[Check]:
    """Checks a PostgreSQL, in the order in which things depend on each other."""
    # Imported when it is asked for: loading a database's driver takes long.
    from rota.api.convert.quarantine import quarantined_job_view, repair_view
    from rota.store.postgres.connect import parse_address
    from rota.store.postgres.durability import check_up
    from rota.store.postgres.quarantine import repair_jobs
    from rota.store.protocol import StoreError

    try:
        found = asyncio.run(check_up(dsn, rows=True))
    except StoreError as error:
        yield Check("store", "fail", str(error), "check the address, and that it is the primary")
        return
    yield Check("store", "ok", f"{found.shown}, version {found.version}")
    yield schema_check(found)
    for line in found.damaged:
        yield Check("rows", "fail", line, "restore a backup of the database")
    yield from durability_checks(found.durability)
    yield from inbox_checks(found)
    yield from loss_checks(found.losses.records, len(found.losses.each))
    yield store_clock_check(found, now_ms())
    yield from quarantine_checks([quarantined_job_view(one) for one in found.quarantine])
    if repair:
        try:
            outcome = asyncio.run(repair_jobs(parse_address(dsn), ()))
        except StoreError as error:
            yield Check("repair", "fail", str(error), "try again")
        else:
            yield from repair_checks(repair_view(outcome))


def schema_check(found: Checkup) -> Check:
    """Checks whether the schema is up to date."""
    if not found.missing:
        return Check("schema", "ok", "up to date")
    text = f"{plural(len(found.missing), 'step')} missing: {', '.join(found.missing)}"
    return Check("schema", "warn", text, "rota migrate --store DSN")


def durability_checks(durability: Durability) -> Iterator[Check]:
    """Says what accepted jobs survive, and which leases that needs."""
    from rota.store.protocol import DurabilityLevel

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


def inbox_checks(found: Checkup) -> Iterator[Check]:
    """Warns of submissions by SQL, or without a leader, that could not be accepted."""
    if not found.set_aside:
        return
    reason = found.set_aside_reason[:REASON_SHOWN_CHARS]
    text = f"{plural(found.set_aside, 'submission')} set aside, the newest because: {reason}"
    yield Check("inbox", "warn", text, "see the table rota.inbox_set_aside")


def loss_checks(records: int, failovers: int) -> Iterator[Check]:
    """Says what failovers of the database have ever lost; recent losses are warnings of the
    cluster."""
    if failovers:
        text = f"{plural(failovers, 'failover')} of the database lost {plural(records, 'record')}"
        yield Check("losses", "ok", f"{text} of the journal so far")


def quarantine_checks(jobs: Sequence[QuarantinedJobView]) -> Iterator[Check]:
    """Warns of jobs whose changes the tables refuse, each with the text of its record."""
    for job in jobs:
        shown = ""
        if job.writes:
            first = job.writes[0]
            fields = json.dumps(first.fields, ensure_ascii=False)[:RECORD_SHOWN_CHARS]
            shown = f". Its record: {first.kind} {fields}" if first.kind else ""
        yield Check(
            "tables",
            "warn",
            f"job {job.job_id} is in quarantine since record {job.seq} ({local(job.at)}), with"
            f" {plural(job.count, 'change')}: {job.reason}{shown}",
            "remove the cause, then rota doctor --repair",
        )


def repair_checks(answer: RepairView) -> Iterator[Check]:
    """Says what came of a repair."""
    for job_id in answer.repaired:
        yield Check("repair", "ok", f"job {job_id} is in the tables again")
    for failure in answer.failed:
        text = f"job {failure.job_id} stays in quarantine: {failure.reason}"
        yield Check("repair", "fail", text, "remove the cause first")
    if not (answer.repaired or answer.failed):
        yield Check("repair", "ok", "there was nothing to repair")


def store_clock_check(found: Checkup, here_ms: int) -> Check:
    """Compares the clocks, for information: no decision does."""
    apart_s = (here_ms - found.clock) / 1000
    return Check(
        "clock",
        "ok",
        f"{abs(apart_s):.1f} s {'ahead of' if apart_s > 0 else 'behind'} the database's",
    )


CLOCK_S_MAX = 2.0
"""The Date header has whole seconds and the way there takes time: less than this means nothing."""
RECORD_SHOWN_CHARS = 1_000
"""Text of a record: enough to see what could not be written."""
REASON_SHOWN_CHARS = 200
"""The whole reason, which may be a page, is in the table."""
DISK_BYTES_MIN = 1 << 30
"""With less than 1 GiB left a busy server fills the disk within an hour."""


@click.command()
@click.option("--store", metavar="DSN", help="Check this PostgreSQL store instead of a server.")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Check all files of this data folder for damage; a server may be using it.",
)  # fmt: skip
@click.option(
    "--repair", is_flag=True, help="Write to the tables what they refused before (quarantine)."
)
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, *, store: str | None, data: Path | None, repair: bool, as_json: bool
) -> None:
    """Check this installation or a store; exit 1 if a check fails."""
    if data is not None and (store is not None or repair):
        raise click.UsageError("--data DIR goes with neither --store DSN nor --repair")
    if store is not None:
        checks = list(store_checks(store, repair=repair))
    elif data is not None:
        checks = list(damage_checks(data))
    else:
        checks = list(installation_checks(endpoint_of(), repair=repair))
    if as_json:
        print_object({"checks": checks})
    else:
        for check in checks:
            _draw(check)
    ctx.exit(1 if any(check.verdict == "fail" for check in checks) else 0)


def _draw(check: Check) -> None:
    style = {"ok": "green", "warn": "yellow", "fail": "red"}[check.verdict]
    line = rich_text(Styled(f"{check.verdict:<5}", style))
    line.append_text(rich_text(f"{check.name:<8} {check.found}"))
    if check.fix:
        line.append_text(rich_text(f". Fix: {check.fix}"))
    console().print(line, soft_wrap=True)


def installation_checks(endpoint: Endpoint, *, repair: bool = False) -> Iterator[Check]:
    """Checks an installation, in the order in which things depend on each other."""
    yield Check("client", "ok", f"rota {__version__}, server from {endpoint.url_from}")
    yield from token_checks(endpoint)
    yield from disk_checks(endpoint)
    yield from small_damage_checks(endpoint)
    yield from asyncio.run(supervisor_checks())
    with Client(endpoint, patience=Patience(retry_for_s=0.0)) as client:
        try:
            alive = client.ask(calls.healthz())
        except RotaError as error:
            yield Check("server", "fail", str(error), _start(endpoint))
            return
        yield Check("server", "ok", f"{endpoint.url} answers")
        yield from clock_checks(alive.headers, now_ms())
        yield from ready_checks(client)
        yield from _server_checks(client, endpoint)
        yield from _quarantine(client, endpoint, repair=repair)


def _start(endpoint: Endpoint) -> str:
    return "rota up" if endpoint.is_local else "check the address and the network"


def token_checks(endpoint: Endpoint) -> Iterator[Check]:
    """Checks whether there is a token, and whether others can read its file."""
    if endpoint.token is None:
        looked = "; ".join(endpoint.looked_in)
        yield Check("token", "warn", f"none found in {looked}", "set ROTA_TOKEN")
        return
    yield Check("token", "ok", f"from {endpoint.token_from}")
    path = Path(endpoint.token_from or "")
    if path.is_absolute() and path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Check("token", "fail", f"others can read {path}", f"chmod 600 {path}")


def disk_checks(endpoint: Endpoint) -> Iterator[Check]:
    """Checks whether the disk of the local server has free space."""
    if endpoint.data is None or not Path(endpoint.data).is_dir():
        return
    free = shutil.disk_usage(endpoint.data).free
    found = f"{size_text(free)} free for {endpoint.data}"
    if free >= DISK_BYTES_MIN:
        yield Check("disk", "ok", found)
    else:
        yield Check("disk", "warn", found, "free some space, or move the data: rota up --data DIR")


def damage_checks(data: Path) -> Iterator[Check]:
    """Checks the files of a data folder for damage."""
    # Imported when it is asked for: loading a database's driver takes long.
    from rota.store.limits import DAMAGE_FOUND_MAX
    from rota.store.sqlite.integrity import damage_in

    if not (data / "rota.db").exists() and not (data / "logs.db").exists():
        yield Check("files", "fail", f"{data} has no rota.db", "name the server's data folder")
        return
    found = list(islice(damage_in(data), DAMAGE_FOUND_MAX))
    for line in found:
        yield Check("files", "fail", line, "stop the server and restore a backup")
    if not found:
        yield Check("files", "ok", f"the files of {data} are whole")


def small_damage_checks(endpoint: Endpoint) -> Iterator[Check]:
    """Checks the local server's files for damage, if that takes seconds only."""
    from rota.store.limits import DAMAGE_LOOKED_BYTES

    data = None if endpoint.data is None else Path(endpoint.data)
    if data is None or not (data / "rota.db").exists():
        return
    size = sum(path.stat().st_size for path in data.glob("*.db"))
    if size <= DAMAGE_LOOKED_BYTES:
        yield from damage_checks(data)
    else:
        text = f"{size_text(size)} in {data} not checked for damage"
        yield Check("files", "ok", f"{text}: `rota doctor --data {data}` does it")


async def supervisor_checks() -> list[Check]:
    """Checks by which means a worker of this user would limit and end jobs."""
    supervisor = Supervisor()
    try:
        hello = await supervisor.hello
    except SupervisorError as error:
        return [Check("jobs", "fail", str(error), "a worker needs Linux 5.4 or newer")]
    finally:
        await supervisor.shut_down()
    memory, processes = _enforcement_text(hello.memory), _enforcement_text(hello.processes)
    means = f"memory by {memory}, processes by {processes}"
    if hello.isolation == "namespace":
        return [Check("jobs", "ok", f"workers here use PID namespaces; {means}")]
    return [Check("jobs", "ok", f"workers here do not use PID namespaces ({hello.why}); {means}")]


def _enforcement_text(what: str) -> str:
    return "polling twice a second" if what == "watched" else what


def clock_checks(headers: Mapping[str, str], here_ms: int) -> Iterator[Check]:
    """Compares the clocks of this machine and the server."""
    try:
        there = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return
    apart_s = abs(here_ms / 1000 - there.timestamp())
    if apart_s <= CLOCK_S_MAX:
        yield Check("clock", "ok", "agrees with the server's")
    else:
        fix = "synchronise both clocks (NTP): --in and --at count on this one"
        yield Check("clock", "warn", f"{apart_s:.0f} s away from the server's", fix)


def ready_checks(client: Client) -> Iterator[Check]:
    """Checks whether the server is ready; each reason why it is not is a failure."""
    try:
        client.ready()
    except ApiError as error:
        for reason in error.problem.reasons or [error.detail]:
            yield Check("ready", "fail", reason, "wait if it is starting; else see its log")
    except RotaError as error:
        yield Check("ready", "fail", str(error), "see the server's log")
    else:
        yield Check("ready", "ok", "accepts and schedules")


def _quarantine(client: Client, endpoint: Endpoint, *, repair: bool) -> Iterator[Check]:
    try:
        jobs = client.call(admin_calls.list_quarantine(limit=PAGE_ITEMS_MAX)).items
        yield from quarantine_checks(jobs)
        if repair:
            yield from repair_checks(client.call(admin_calls.repair_quarantine()))
    except RotaError as error:
        # Only an admin sees the quarantine; for others the cluster's warnings count the jobs.
        if repair:
            fix = "use an admin's token, or --store DSN"
            yield Check("repair", "fail", explain(error, endpoint), fix)


def _server_checks(client: Client, endpoint: Endpoint) -> Iterator[Check]:
    try:
        stats = client.stats()
    except UnavailableError:
        return  # it is not ready, which was said, and nobody can know more
    except RotaError as error:
        yield Check("access", "fail", explain(error, endpoint), "set ROTA_TOKEN")
        return
    yield Check("access", "ok", "the server accepts this client")
    yield version_check(stats.version)
    yield from cluster_checks(client.cluster())
    yield workers_check(stats, endpoint)


def version_check(there: str) -> Check:
    """Compares the versions of client and server."""
    if there == __version__:
        return Check("version", "ok", f"server {there}")
    fix = "install the same version on both sides"
    return Check("version", "warn", f"server {there}, client {__version__}", fix)


def cluster_checks(view: ClusterView) -> Iterator[Check]:
    """Checks whether a server leads, and how durable jobs are."""
    nodes = plural(len(view.nodes), "server")
    if view.leader is None:
        yield Check("cluster", "fail", f"{nodes}, and none leads", "look at the servers' logs")
    else:
        yield Check("cluster", "ok", f"{nodes}, {view.leader} leads; durability {view.durability}")
    for warning in view.warnings:
        yield Check("cluster", "warn", warning, "see: rota cluster")
    yield from loss_checks(view.lost_records, len(view.losses))


def workers_check(stats: StatsView, endpoint: Endpoint) -> Check:
    """Checks whether a worker is online."""
    online = stats.workers.get("online", 0)
    if online:
        return Check("workers", "ok", f"{plural(online, 'worker')} online")
    return Check("workers", "warn", "none online", f"rota worker --server {endpoint.url}")
