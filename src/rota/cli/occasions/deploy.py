"""Loads the app that declares schedules and triggers, and shows what deploying it changed."""

from __future__ import annotations

import importlib
import os
import sys

import click

from rota.cli.problems import Failure
from rota.cli.text import plain
from rota.sdk import App
from rota.wire.schedules import DeployAnswer


def load_app(text: str) -> App:
    """Loads the app of `package.module:name`, also from the working folder, as python -m does."""
    module, colon, name = text.partition(":")
    if not colon:
        raise click.UsageError(f"{text!r} is not PACKAGE.MODULE:APP")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise Failure(f"cannot load {plain(text)}: {error}") from error
    if not isinstance(found, App):
        raise Failure(f"{plain(text)} is no rota.App")
    return found


def draw_deployed(done: DeployAnswer) -> None:
    """Prints a line for each name."""
    for word in ("created", "changed", "unchanged", "retired"):
        for name in getattr(done, word):
            click.echo(f"{word:9} {plain(name)}")
