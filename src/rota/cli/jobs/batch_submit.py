"""Submits many jobs in batches, with a progress bar on a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

import click
import msgspec

from rota.cli.connect import limits
from rota.cli.problems import Failure, explain
from rota.sdk import Client, InvalidError, batches

_PLACE = re.compile(r"jobs[\[.](\d+)\]?[.]?(.*)")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """Job to submit, and the line it stands in."""

    job: dict[str, Any]
    place: str


class ProgressBar(Protocol):
    """Progress bar."""

    def advance(self, steps: int) -> None:
        """Adds steps that are done."""
        ...


def copies(job: dict[str, Any], how_many: int) -> Iterator[BatchEntry]:
    """Repeats a job."""
    return (BatchEntry(job, "") for _ in range(how_many))


def jobs_in(source: str, terms: Mapping[str, Any]) -> Iterator[BatchEntry]:
    """Reads jobs from a file of JSON lines, and completes each with `terms`."""
    try:
        with click.open_file(source, "rb") as file:
            yield from _entries(file, source, terms)
    except OSError as error:
        raise Failure(f"{source}: {error.strerror}") from error


def _entries(file: IO[bytes], source: str, terms: Mapping[str, Any]) -> Iterator[BatchEntry]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{source}:{number}"
        try:
            job = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Failure(f"{place}: not a JSON object: {error}") from error
        yield BatchEntry({**terms, **job}, place)


def submit_many(
    client: Client, entries: Iterable[BatchEntry], *, total: int | None = None
) -> list[str]:
    """Submits them all; jobs may depend on earlier ones by `ref:`, also across batches."""
    reading = _UnsubmittedLines(entries)
    with progress_bar("submitting", total) as bar:

        def submitted(count: int) -> None:
            bar.advance(count - reading.submitted)
            reading.forget(count)

        flow = batches.submit_many(
            client.state, reading.jobs(), on_progress=submitted, jobs_max=limits().batch_jobs
        )
        try:
            return client.run(flow)
        except InvalidError as error:
            raise Failure(_explain(client, error, reading)) from error


class _UnsubmittedLines:
    """Lines of the jobs that were read and are not submitted yet."""

    def __init__(self, entries: Iterable[BatchEntry]) -> None:
        self._entries = entries
        self._places: list[str] = []
        self.submitted = 0

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Yields the jobs, and keeps the line of each."""
        for entry in self._entries:
            self._places.append(entry.place)
            yield entry.job

    def forget(self, submitted: int) -> None:
        """Drops the lines of jobs that were submitted."""
        del self._places[: submitted - self.submitted]
        self.submitted = submitted

    def place(self, number: int) -> str:
        """Returns the line of a job of the next batch; empty if it is not from a file."""
        return self._places[number] if number < len(self._places) else ""


def _explain(client: Client, error: InvalidError, reading: _UnsubmittedLines) -> str:
    """Says what is wrong, and in which line."""
    said = explain(error, client.endpoint)
    for one in error.errors:
        found = _PLACE.match(one.field)
        if found is not None and (place := reading.place(int(found[1]))):
            where = f"{found[2]}: " if found[2] else ""
            said = f"{place}: {where}{one.message}"
            break
    before = reading.submitted
    return f"{said} ({before} jobs before this batch were submitted)" if before else said


class _NoProgressBar:
    """No progress bar, where stderr is no terminal."""

    def advance(self, steps: int) -> None:
        """Shows nothing."""


@contextmanager
def progress_bar(doing: str, total: int | None) -> Iterator[ProgressBar]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _NoProgressBar()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from rota.cli.render import console

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(doing, total=total)

        class Drawn:
            """Bar on the terminal."""

            def advance(self, steps: int) -> None:
                """Moves it."""
                drawn.advance(task, steps)

        yield Drawn()
