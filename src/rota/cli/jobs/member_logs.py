"""What the members of an array or gang printed, one after the other, each line with its index."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import click

from rota.sdk import Client, JobSearch
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX

MEMBERS_MAX = 100
"""Printed without being asked for by `--index`: a log of ten thousand logs is read by nobody."""
LOOK_S = 1.0
"""Between two looks for members that a worker has taken meanwhile."""
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


def is_band(job: JobView) -> bool:
    """Whether it stands for members, which are what prints."""
    return job.array is not None or job.gang is not None


def size_of(job: JobView) -> int:
    """How many members it has."""
    return job.array.count if job.array else job.gang.size if job.gang else 0


def index_of(member: JobView) -> int:
    """Its number."""
    found = member.array_index if member.array_index is not None else member.gang_index
    return found or 0


def members_of(client: Client, band: JobView) -> list[JobView]:
    """Those that a worker has taken or that have ended, by index."""
    search = JobSearch(array=band.job_id, limit=PAGE_ITEMS_MAX)
    return sorted(client.jobs(search), key=index_of)


def member_at(client: Client, band: JobView, index: int) -> JobView:
    """The one of that number; says which there are if it is not there."""
    if index >= size_of(band):
        raise click.UsageError(f"--index goes from 0 to {size_of(band) - 1}")
    members = members_of(client, band)
    for one in members:
        if index_of(one) == index:
            return one
    known = ", ".join(str(index_of(one)) for one in members[:20]) or "none"
    raise click.ClickException(
        f"no worker has taken member {index} yet, so it has printed nothing (taken: {known})"
    )


def told(client: Client, band: JobView, tail: int | None) -> Iterator[bytes]:
    """The logs there are; says on stderr what is not among them."""
    members = members_of(client, band)
    for one in members[:MEMBERS_MAX]:
        yield from marked((client.logs(one.job_id, tail=tail),), index_of(one))
    if len(members) > MEMBERS_MAX:
        more = f"{len(members) - MEMBERS_MAX} more members: name one with --index"
        click.echo(more, err=True)
    if waiting := size_of(band) - len(members):
        click.echo(f"{waiting} members wait for a worker, and have printed nothing", err=True)


def followed(client: Client, band: JobView, tail: int | None) -> Iterator[bytes]:
    """One member after the other, in the order of their numbers, until the whole has ended."""
    seen: set[str] = set()
    while True:
        ended = client.job(band.job_id).status in FINAL
        fresh = [one for one in members_of(client, band) if one.job_id not in seen]
        for one in fresh:
            seen.add(one.job_id)
            yield from marked(client.follow_logs(one.job_id, tail=tail), index_of(one))
        if ended and not fresh:
            return
        if not fresh:
            threading.Event().wait(LOOK_S)


def marked(chunks: Iterable[bytes], index: int) -> Iterator[bytes]:
    """The same lines, each with the member's number before it; the last one is ended."""
    mark, begins = f"[{index}] ".encode(), True
    for chunk in filter(None, chunks):
        body = chunk[:-1] if chunk.endswith(b"\n") else chunk
        text = body.replace(b"\n", b"\n" + mark)
        yield (mark if begins else b"") + text + chunk[len(body) :]
        begins = chunk.endswith(b"\n")
    if not begins:
        yield b"\n"
