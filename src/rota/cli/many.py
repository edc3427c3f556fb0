"""Submits many jobs in batches, with a progress bar where somebody watches."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, Protocol

import click
import msgspec

from rota.cli.problems import Failure, explain
from rota.sdk import Client, InvalidError

BATCH_JOBS = 1_000
"""Large enough to be quick, small enough for a progress bar to move."""

_PLACE = re.compile(r"jobs[\[.](\d+)\]?[.]?(.*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A job to submit, and where it was written."""

    job: dict[str, Any]
    place: str


class Bar(Protocol):
    """How far something is."""

    def advance(self, steps: int) -> None:
        """So many more."""
        ...


def copies(job: dict[str, Any], how_many: int) -> Iterator[Entry]:
    """The same job again and again."""
    return (Entry(job, "") for _ in range(how_many))


def jobs_in(source: str, terms: Mapping[str, Any]) -> Iterator[Entry]:
    """The jobs of a file of JSON lines, each completed with `terms`."""
    try:
        with click.open_file(source, "rb") as file:
            yield from _entries(file, source, terms)
    except OSError as error:
        raise Failure(f"{source}: {error.strerror}") from error


def _entries(file: IO[bytes], source: str, terms: Mapping[str, Any]) -> Iterator[Entry]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"{source}:{number}"
        try:
            job = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise Failure(f"{place}: not a JSON object: {error}") from error
        yield Entry({**terms, **job}, place)


def submit_many(client: Client, entries: Iterable[Entry], *, total: int | None = None) -> list[str]:
    """Submits them all; jobs may depend on earlier ones by `ref:`, also across batches."""
    job_ids: list[str] = []
    known: dict[str, str] = {}
    source = iter(entries)
    with progress("submitting", total) as bar:
        while batch := list(islice(source, BATCH_JOBS)):
            jobs = [_with_known_refs(entry.job, known) for entry in batch]
            try:
                answered = client.submit_batch(jobs)
            except InvalidError as error:
                raise Failure(_explain(client, error, batch, len(job_ids))) from error
            job_ids += answered
            for entry, job_id in zip(batch, answered, strict=True):
                if "ref" in entry.job:
                    known[entry.job["ref"]] = job_id
            bar.advance(len(batch))
    return job_ids


def _with_known_refs(job: dict[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """A `ref:` holds within one batch only: those of earlier batches become ids."""
    needed = job.get("dependencies")
    if not known or not isinstance(needed, list):
        return job
    return {**job, "dependencies": [_with_known_ref(one, known) for one in needed]}


def _with_known_ref(needed: Any, known: Mapping[str, str]) -> Any:
    if isinstance(needed, str) and needed.startswith("ref:"):
        return known.get(needed[4:], needed)
    if isinstance(needed, dict) and str(needed.get("job_id", "")).startswith("ref:"):
        return {**needed, "job_id": known.get(needed["job_id"][4:], needed["job_id"])}
    return needed


def _explain(client: Client, error: InvalidError, batch: list[Entry], before: int) -> str:
    """What is wrong, by the line it stands in."""
    said = explain(error, client.endpoint)
    for one in error.errors:
        found = _PLACE.match(one.field)
        if found is not None and int(found[1]) < len(batch) and batch[int(found[1])].place:
            where = f"{found[2]}: " if found[2] else ""
            said = f"{batch[int(found[1])].place}: {where}{one.message}"
            break
    return f"{said} ({before} jobs before this batch were submitted)" if before else said


class _Silent:
    """Nobody watches."""

    def advance(self, steps: int) -> None:
        """Says nothing."""


@contextmanager
def progress(doing: str, total: int | None) -> Iterator[Bar]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from rota.cli.render import console

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(doing, total=total)

        class Drawn:
            """The bar on the screen."""

            def advance(self, steps: int) -> None:
                """Moves it."""
                drawn.advance(task, steps)

        yield Drawn()
