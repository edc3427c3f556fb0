"""Option for the format of a server's log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rota.processes.process_log import VARIABLE

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("auto", "json", "text")


def _set_format(_ctx: click.Context, _given: click.Parameter, value: str) -> None:
    # The environment, so that the workers that a server starts write alike.
    os.environ[VARIABLE] = value


def log_option(command: F) -> F:
    """Adds `--log-format`."""
    return click.option(
        "--log-format", type=click.Choice(FORMATS), default="auto", show_default=True,
        envvar=VARIABLE, callback=_set_format, expose_value=False,
        help="Format of the log on stderr; auto: text on a terminal, JSON elsewhere.",
    )(command)  # fmt: skip
