"""Whether `rota` takes a command line as it is shown somewhere, without running it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from rota.cli.main import tree


def taken(line: str) -> str | None:
    """None if `rota` takes it; else what it would say."""
    program, *words = shlex.split(line)
    assert program == "rota", line
    try:
        _parse(tree, "rota", words, None)
    except click.ClickException as error:
        return f"{line}: {error.format_message()}"
    except click.exceptions.Exit:
        return None  # it was asked for its help, and gave it
    return None


def _parse(
    command: click.Command, name: str, words: Sequence[str], parent: click.Context | None
) -> None:
    # What it would ask a person for is given, so that it does not.
    asked = [one.opts[0] for one in command.params if getattr(one, "prompt", None)]
    given = [part for option in asked if option not in words for part in (option, "given")]
    context = command.make_context(name, [*given, *words], parent=parent)
    if not isinstance(command, click.Group):
        return
    rest = [*context._protected_args, *context.args]
    if rest:
        found, inner, left = command.resolve_command(context, rest)
        assert inner is not None
        _parse(inner, found or "", left, context)
