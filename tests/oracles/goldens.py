"""Texts that users see, to compare: the OpenAPI document, the command line, the metrics.

Of the first two the contract is compared apart from the wording, which may be improved.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rota.api.endpoints import OPERATIONS
from rota.api.openapi.document import build_document
from rota.cli.main import tree
from tests.api.in_process_server import NOOP, open_server

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "golden"
WIDTH = 100
PROSE = ("description", "summary", "examples", "example", "title")


def openapi() -> str:
    """Writes the whole OpenAPI document."""
    return json.dumps(build_document(OPERATIONS, "VERSION"), indent=0) + "\n"


def without_prose(node: Any, *, names: bool = False) -> Any:
    """Drops descriptions and examples of a document; `names`: its keys are names of fields."""
    if isinstance(node, dict):
        kept = {key: value for key, value in node.items() if names or key not in PROSE}
        named = ("properties", "$defs", "schemas")
        return {key: without_prose(one, names=key in named) for key, one in kept.items()}
    return [without_prose(one) for one in node] if isinstance(node, list) else node


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Yields every command, with its context."""
    settings = tree.context_settings
    yield from _below(click.Context(tree, info_name="rota", terminal_width=WIDTH, **settings), tree)


def _below(
    context: click.Context, command: click.Command
) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            inner = command.get_command(context, name)
            assert inner is not None, name
            below = click.Context(
                inner, context, name, terminal_width=WIDTH, **inner.context_settings
            )
            yield from _below(below, inner)


def cli_help() -> str:
    """Writes the help of every command in a fresh process: click keeps options of earlier uses."""
    script = "from tests.oracles import goldens; print(goldens.help_of_commands(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def help_of_commands() -> str:
    """Writes the help of every command, without the widths of columns, which click chooses."""
    texts = (
        f"$ {context.command_path} --help\n{command.get_help(context).rstrip()}\n"
        for context, command in commands()
    )
    return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", text) for text in texts)


def cli_options() -> str:
    """Writes every command's arguments and options, without their help."""
    found = {
        context.command_path: [_option(one) for one in command.params]
        for context, command in commands()
    }
    return json.dumps(found, indent=1) + "\n"


def _option(param: click.Parameter) -> str:
    kind = param.type
    choices = f" of {','.join(map(str, kind.choices))}" if isinstance(kind, click.Choice) else ""
    marks = [
        name for name in ("required", "multiple", "is_flag", "hidden") if getattr(param, name, 0)
    ]
    if param.nargs != 1:
        marks.append(f"nargs={param.nargs}")
    names = "|".join((*param.opts, *param.secondary_opts))
    return " ".join((f"{param.param_type_name} {names}{choices}", *marks))


def metrics() -> str:
    """Writes names, types, units and labels of all metrics that a server has after a job."""
    text = asyncio.run(_scrape())
    lines = []
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        samples: dict[str, list[str]] = {}
        for sample in family.samples:
            samples.setdefault(sample.name, sorted(sample.labels))
        named = [f"{name}{{{','.join(labels)}}}" for name, labels in sorted(samples.items())]
        lines.append(f"{family.name} {family.type} {' '.join(named)}".rstrip())
    return "\n".join(sorted(lines)) + "\n"


async def _scrape() -> str:
    async with open_server() as server:
        await server.finish(await server.start(await server.register()))
        await server.ask(
            "POST", "/jobs", {"name": "waits", "queue": "other", "task": NOOP}, expect=201
        )
        wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = await server.http.get("/metrics", headers=wanted)
        return answer.text


GOLDENS: Mapping[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "cli_help.txt": cli_help,
    "cli_options.json": cli_options,
    "metrics.txt": metrics,
}


def recorded_text(name: str) -> str:
    """Reads a recorded text."""
    return (FOLDER / name).read_text(encoding="utf-8")


def first_lines_that_differ(then: str, now: str) -> str:
    """Returns lines of one text only; a comparison of two long texts would hide them."""
    before, after = then.splitlines(), now.splitlines()
    then_set, now_set = set(before), set(after)
    gone = [f"- {line}" for line in before if line not in now_set]
    new = [f"+ {line}" for line in after if line not in then_set]
    return "\n".join([*gone[:20], *new[:20]]) or "(only the order of lines)"


def renew(*names: str) -> None:
    """Records the texts of today."""
    for name in names or tuple(GOLDENS):
        (FOLDER / name).write_text(GOLDENS[name](), encoding="utf-8")
