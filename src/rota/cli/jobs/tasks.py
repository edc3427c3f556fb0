"""Builds the task that the options of `rota submit` describe: a program, a function, a request."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

KINDS = ("command", "function", "python", "http", "bundle", "container", "noop")
BELONGS = {
    "args": ("function", "python"),
    "kwargs": ("function", "python"),
    "method": ("http",),
    "header": ("http",),
    "body": ("http",),
    "env": ("command", "bundle", "container"),
    "cwd": ("command",),
    "input": ("command", "bundle", "container"),
}
"""Options that make sense with some kinds of task only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What was typed about the task."""

    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    function: str | None = None
    python: str | None = None
    args: str | None = None
    kwargs: str | None = None
    http: str | None = None
    method: str | None = None
    header: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    noop: bool = False
    bundle: str | None = None
    container: str | None = None
    input: tuple[tuple[str, str], ...] = ()
    """Names, and the bundles that are found under them."""


def run_of(options: TaskOptions) -> dict[str, Any]:
    """What to run and a name for it: `task`, or the `payload` of a registered function."""
    kind = _kind(options)
    if kind == "command":
        return {"name": os.path.basename(options.command[0]) or "job", "task": _command(options)}
    if kind == "function":
        call = _call(options)
        return {"name": options.function, **({"payload": call} if call else {})}
    if kind == "python":
        assert options.python is not None
        task = {"kind": "python", "entry": options.python, **_call(options)}
        return {"name": options.python.rpartition(":")[2] or options.python, "task": task}
    if kind == "http":
        assert options.http is not None
        return {"name": urlsplit(options.http).hostname or "http", "task": _request(options)}
    if kind in ("bundle", "container"):
        return {"name": _program_name(options), "task": _packed(kind, options)}
    return {"name": "noop", "task": {"kind": "noop"}}


def _program_name(options: TaskOptions) -> str:
    """As the program is called; a container may run its own."""
    if options.command:
        return os.path.basename(options.command[0]) or "job"
    image = (options.container or "bundle").rpartition("/")[2]
    return image.partition("@")[0].partition(":")[0] or "job"


def _packed(kind: str, options: TaskOptions) -> dict[str, Any]:
    what = {"bundle_id": options.bundle} if kind == "bundle" else {"image": options.container}
    task: dict[str, Any] = {"kind": kind, **what}
    if options.command:
        task["argv"] = list(options.command)
    return {**task, **_around(options)}


def _around(options: TaskOptions) -> dict[str, Any]:
    task: dict[str, Any] = {}
    if options.env:
        task["env"] = dict(options.env)
    if options.input:
        task["inputs"] = dict(options.input)
    return task


def _kind(options: TaskOptions) -> str:
    for kind in KINDS:
        if getattr(options, kind) == "":  # an unset variable: the command must not run without it
            raise click.UsageError(f"--{kind} is empty")
    given = [kind for kind in KINDS if getattr(options, kind)]
    if given[:1] == ["command"] and given[1:] in (["bundle"], ["container"]):
        given = given[1:]  # the command is what runs in there
    if not given:
        raise click.UsageError(
            "say what to run: -- COMMAND ARGS…, or --bundle, --container, --function, --python"
            " or --http"
        )
    if len(given) > 1:
        named = " and ".join(_option(kind) for kind in given)
        raise click.UsageError(f"{named}: a job runs one of them")
    for name, kinds in BELONGS.items():
        if getattr(options, name) and given[0] not in kinds:
            places = " or ".join(
                "a command" if kind == "command" else f"--{kind}" for kind in kinds
            )
            raise click.UsageError(f"--{name} goes with {places}")
    return given[0]


def _option(kind: str) -> str:
    return "a command" if kind == "command" else f"--{kind}"


def _command(options: TaskOptions) -> dict[str, Any]:
    task: dict[str, Any] = {"kind": "command", "argv": list(options.command), **_around(options)}
    if options.cwd is not None:
        task["cwd"] = os.path.abspath(options.cwd)
    return task


def _call(options: TaskOptions) -> dict[str, Any]:
    call: dict[str, Any] = {}
    if options.args is not None:
        call["args"] = read_json(options.args, "--args")
        if not isinstance(call["args"], list):
            raise click.BadParameter("a JSON list, such as [42]", param_hint="'--args'")
    if options.kwargs is not None:
        call["kwargs"] = read_json(options.kwargs, "--kwargs")
        if not isinstance(call["kwargs"], dict):
            raise click.BadParameter('a JSON object, such as {"n": 42}', param_hint="'--kwargs'")
    return call


def _request(options: TaskOptions) -> dict[str, Any]:
    body = None if options.body is None else _body(options.body)
    method = options.method or ("GET" if body is None else "POST")
    task: dict[str, Any] = {"kind": "http", "url": options.http, "method": method.upper()}
    if options.header:
        task["headers"] = dict(options.header)
    if body is not None:
        task["body"] = body
    return task


def _body(text: str) -> Any:
    """JSON if it is, else the text itself."""
    content = _content(text, "--body")
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return content.decode("utf-8", "replace")


def read_json(text: str, option: str) -> Any:
    """JSON, or `@file` with JSON in it; `@-` is what comes in on stdin."""
    try:
        return msgspec.json.decode(_content(text, option))
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=f"'{option}'") from error


def _content(text: str, option: str) -> bytes:
    if not text.startswith("@"):
        return text.encode()
    try:
        return sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()
    except OSError as error:
        message = f"{text[1:]}: {error.strerror}"
        raise click.BadParameter(message, param_hint=f"'{option}'") from error
