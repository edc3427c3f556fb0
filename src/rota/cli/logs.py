"""Prints the log of a job, or of the members of an array or gang, each line with its index."""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import click

from rota.cli import id_lookup
from rota.cli.connect import connected
from rota.cli.id_lookup import job_id
from rota.cli.options import json_option
from rota.cli.render import plain_log, print_object, unfinished
from rota.sdk import Client, JobSearch
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX

MEMBERS_MAX = 100
"""Printed without being asked for by `--index`: nobody reads ten thousand logs at once."""
LOOK_S = 1.0
"""Between two looks for members that a worker has taken meanwhile."""
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


@click.command()
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job has ended.")
@click.option(
    "--tail", "-n", type=click.IntRange(0), metavar="N", help="Start with the last N lines."
)
@click.option(
    "--index", type=click.IntRange(0), metavar="N", help="Only this member of an array or gang."
)
@click.option("--raw", is_flag=True, help="Write control characters to the terminal as they are.")
@json_option
def logs(job: str, *, index: int | None, as_json: bool, **how: Any) -> None:
    """Print the log of a job; for an array or gang each line with its member's index.

    On a terminal, colours are kept and other control characters are escaped, so that a log cannot
    change the terminal; a pipe or file gets every byte unchanged.
    """
    if how["follow"] and as_json:
        raise click.UsageError("--json prints one document: it does not go with --follow")
    with connected() as client:
        found = client.job(job_id(client, job))
        if index is not None:
            if not is_group(found):
                raise click.UsageError(f"--index is for arrays and gangs: {found.name} is one job")
            found = member_at(client, found, index)
        chunks = log_of(client, found, follow=how["follow"], tail=how["tail"])
        if as_json:
            text = b"".join(chunks).decode("utf-8", "replace")
            print_object({"job_id": found.job_id, "log": text})
            return
        writer = LogWriter(raw=how["raw"])
        for chunk in chunks:
            writer.write(chunk)
        writer.finish()


def log_of(client: Client, job: JobView, *, follow: bool, tail: int | None) -> Iterator[bytes]:
    """Reads what a job or the members of an array or gang printed; `follow` goes on to the end."""
    if is_group(job):
        return follow_members(client, job, tail) if follow else member_logs(client, job, tail)
    if follow:
        return client.follow_logs(job.job_id, tail=tail)
    return iter((client.logs(job.job_id, tail=tail),))


class LogWriter:
    """Writes a log to stdout as it comes, safely if that is a terminal."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw or not sys.stdout.isatty()
        self._colours = not os.environ.get("NO_COLOR")
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._incomplete = ""
        self._open_line = False
        self._coloured = False

    def write(self, chunk: bytes) -> None:
        """Writes a piece; a character or a colour may be cut between two."""
        if self._raw:
            sys.stdout.buffer.write(chunk)
        else:
            text = self._incomplete + self._decoder.decode(chunk)
            cut = len(text) - unfinished(text)
            self._incomplete = text[cut:]
            self._show(text[:cut])
        sys.stdout.flush()

    def finish(self) -> None:
        """Leaves the terminal at the beginning of a line, and without colour."""
        self._show(self._incomplete + self._decoder.decode(b"", final=True))
        end = "\x1b[0m" if self._coloured else ""
        sys.stdout.write(end + "\n" if self._open_line else end)
        sys.stdout.flush()

    def _show(self, text: str) -> None:
        if text:
            shown = plain_log(text, colours=self._colours)
            self._open_line = not shown.endswith("\n")
            self._coloured = self._coloured or "\x1b" in shown
            sys.stdout.write(shown)


# Members of arrays and gangs


def is_group(job: JobView) -> bool:
    """Whether it is an array or gang, whose members print."""
    return job.array is not None or job.gang is not None


def size_of(job: JobView) -> int:
    """Counts its members."""
    return job.array.count if job.array else job.gang.size if job.gang else 0


def index_of(member: JobView) -> int:
    """Returns the number of a member."""
    found = member.array_index if member.array_index is not None else member.gang_index
    return found or 0


def members_of(client: Client, group: JobView) -> list[JobView]:
    """Lists the members that a worker has taken or that have ended, by index."""
    search = JobSearch(array=group.job_id, limit=PAGE_ITEMS_MAX)
    return sorted(client.jobs(search), key=index_of)


def member_at(client: Client, group: JobView, index: int) -> JobView:
    """Returns the member of that number, or fails and names those there are."""
    if index >= size_of(group):
        raise click.UsageError(f"--index goes from 0 to {size_of(group) - 1}")
    members = members_of(client, group)
    for one in members:
        if index_of(one) == index:
            return one
    known = ", ".join(str(index_of(one)) for one in members[:20]) or "none"
    raise click.ClickException(
        f"member {index} has not started, so it has no log yet (started: {known})"
    )


def member_logs(client: Client, group: JobView, tail: int | None) -> Iterator[bytes]:
    """Reads the logs there are; says on stderr what is missing."""
    members = members_of(client, group)
    for one in members[:MEMBERS_MAX]:
        yield from with_index((client.logs(one.job_id, tail=tail),), index_of(one))
    if len(members) > MEMBERS_MAX:
        more = f"{len(members) - MEMBERS_MAX} more members: name one with --index"
        click.echo(more, err=True)
    if waiting := size_of(group) - len(members):
        click.echo(f"{waiting} members have not started, and have no log yet", err=True)


def follow_members(client: Client, group: JobView, tail: int | None) -> Iterator[bytes]:
    """Reads one member after the other, by number, until the whole group has ended."""
    seen: set[str] = set()
    while True:
        ended = client.job(group.job_id).status in FINAL
        fresh = [one for one in members_of(client, group) if one.job_id not in seen]
        for one in fresh:
            seen.add(one.job_id)
            yield from with_index(client.follow_logs(one.job_id, tail=tail), index_of(one))
        if ended and not fresh:
            return
        if not fresh:
            threading.Event().wait(LOOK_S)


def with_index(chunks: Iterable[bytes], index: int) -> Iterator[bytes]:
    """Puts the member's number before each line, and ends the last line."""
    mark, begins = f"[{index}] ".encode(), True
    for chunk in filter(None, chunks):
        body = chunk[:-1] if chunk.endswith(b"\n") else chunk
        text = body.replace(b"\n", b"\n" + mark)
        yield (mark if begins else b"") + text + chunk[len(body) :]
        begins = chunk.endswith(b"\n")
    if not begins:
        yield b"\n"
