"""Reads jobs: lists, one in full, what it printed, what it hangs together with."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from rota.cli import offers
from rota.cli.connect import answer, answer_list, connected
from rota.cli.jobs.member_logs import followed, is_band, member_at, told
from rota.cli.jobs.trees import branches
from rota.cli.names import job_id
from rota.cli.options import filter_options, json_option, now_ms, search_of
from rota.cli.render import (
    Styled,
    console,
    print_object,
    rich_text,
    show_facts,
    show_table,
    status_cell,
)
from rota.cli.text import plain_log, short, unfinished
from rota.cli.views import EXECUTION_COLUMNS, JOB_COLUMNS, execution_row, job_facts, job_row
from rota.sdk import Client, JobSearch, calls
from rota.wire.jobs import (
    GraphView,
    JobPage,
    JobView,
)
from rota.wire.limits import PAGE_ITEMS_MAX

PageSize = click.IntRange(1, PAGE_ITEMS_MAX)


@click.command()
@filter_options
@click.option("--array", metavar="ID", help="Members of this array or gang.")
@click.option("--limit", type=PageSize, default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="Goes on where a page ended.")
@click.option("--all", "every", is_flag=True, help="All pages.")
@json_option
def jobs(
    limit: int, cursor: str | None, array: str | None, *, every: bool, as_json: bool, **given: Any
) -> None:
    """List jobs, newest first.

    Times may be a length of time before now: --after 2h.
    """
    with connected() as client:
        of = None if array is None else job_id(client, array)
        if every:
            search = replace(search_of(given, limit=PAGE_ITEMS_MAX), array=of)
            _list_all(client, search, as_json=as_json)
            return
        search = replace(search_of(given, limit=limit, cursor=cursor), array=of)
        answer_list(client, calls.list_jobs(search), limit, _draw_page, as_json=as_json)


def _list_all(client: Client, search: JobSearch, *, as_json: bool) -> None:
    found = list(client.jobs(search))
    if as_json:
        print_object(JobPage(found, None))
    else:
        _draw_page(JobPage(found, None))


def _draw_page(page: JobPage) -> None:
    now = now_ms()
    show_table(JOB_COLUMNS, [job_row(job, now) for job in page.items], empty="no jobs")
    if page.next_cursor is not None and sys.stdout.isatty():
        click.echo(f"more: --all, or --cursor {page.next_cursor}", err=True)


@click.command("dead-letters")
@click.option("--limit", type=PageSize, default=50, show_default=True, help="At most so many.")
@click.option("--cursor", help="Goes on where a page ended.")
@json_option
def dead_letters(limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List jobs that used up their attempts."""
    with connected() as client:
        call = calls.dead_letters(limit=limit, cursor=cursor)
        answer_list(client, call, limit, _draw_page, as_json=as_json)


@click.command()
@click.argument("job", shell_complete=offers.jobs)
@json_option
def show(job: str, *, as_json: bool) -> None:
    """Show all there is to know about a job."""
    with connected() as client:
        found = job_id(client, job)

        def draw(view: JobView) -> None:
            now = now_ms()
            show_facts(job_facts(view, now))
            tries = client.executions(job_id=found, limit=20).items
            if tries:
                print()
                rows = [execution_row(one, now) for one in tries]
                show_table(EXECUTION_COLUMNS, rows, empty="")

        answer(client, calls.get_job(found), draw, as_json=as_json)


@click.command()
@click.argument("job", shell_complete=offers.jobs)
@json_option
def graph(job: str, *, as_json: bool) -> None:
    """Draw the dependencies around a job: below each stands what waits for it."""
    with connected() as client:
        found = job_id(client, job)

        def draw(view: GraphView) -> None:
            screen = console()
            for branch in branches(view):
                line = rich_text(Styled(branch.lead, "dim"))
                line.append_text(rich_text(f"{short(branch.node.job_id)} {branch.node.name} "))
                line.append_text(rich_text(status_cell(branch.node.status)))
                line.append(f"  {branch.remark}" if branch.remark else "", style="dim")
                line.append("  <-" if branch.node.job_id == found else "", style="bold")
                screen.print(line, no_wrap=True, overflow="ellipsis", crop=True)
            if view.truncated:
                click.echo("the graph is larger than what is shown", err=True)

        answer(client, calls.graph(found), draw, as_json=as_json)


@click.command()
@click.argument("job", shell_complete=offers.jobs)
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", "-n", type=click.IntRange(0), metavar="N", help="The last N lines first.")
@click.option("--index", type=click.IntRange(0), metavar="N", help="Of an array: this member.")
@click.option("--raw", is_flag=True, help="Write control characters to the terminal as they are.")
@json_option
def logs(job: str, *, index: int | None, as_json: bool, **how: Any) -> None:
    """Print what a job printed; of an array or gang what each member did, after its number.

    On a terminal colours stay and other control characters are written out, so that a log cannot
    play tricks on it; into a pipe or file every byte goes as it is.
    """
    if how["follow"] and as_json:
        raise click.UsageError("--json prints one document: it does not go with --follow")
    with connected() as client:
        found = client.job(job_id(client, job))
        if index is not None:
            if not is_band(found):
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
    """What a job printed, or the members of an array or gang; `follow` goes on to its end."""
    if is_band(job):
        return followed(client, job, tail) if follow else told(client, job, tail)
    if follow:
        return client.follow_logs(job.job_id, tail=tail)
    return iter((client.logs(job.job_id, tail=tail),))


class LogWriter:
    """Writes a log to stdout as it comes, safely if that is a terminal."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw or not sys.stdout.isatty()
        self._colours = not os.environ.get("NO_COLOR")
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""
        self._open_line = False
        self._coloured = False

    def write(self, chunk: bytes) -> None:
        """Writes a piece; a character or a colour may be cut between two."""
        if self._raw:
            sys.stdout.buffer.write(chunk)
        else:
            text = self._held + self._decoder.decode(chunk)
            cut = len(text) - unfinished(text)
            self._held = text[cut:]
            self._show(text[:cut])
        sys.stdout.flush()

    def finish(self) -> None:
        """Leaves the terminal at the beginning of a line, and without colour."""
        self._show(self._held + self._decoder.decode(b"", final=True))
        end = "\x1b[0m" if self._coloured else ""
        sys.stdout.write(end + "\n" if self._open_line else end)
        sys.stdout.flush()

    def _show(self, text: str) -> None:
        if text:
            shown = plain_log(text, colours=self._colours)
            self._open_line = not shown.endswith("\n")
            self._coloured = self._coloured or "\x1b" in shown
            sys.stdout.write(shown)
