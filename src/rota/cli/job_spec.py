"""Builds the job and its task from the options of `rota submit`; asks no server."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import click
import msgspec

from rota.cli.options import read_content, read_json, without_none
from rota.wire.formats import Duration

Options: TypeAlias = Mapping[str, Any]
"""Values of the options by their names; those that a command does not have are missing."""

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


def run_of(options: Options) -> dict[str, Any]:
    """Builds the name and the task, or the `payload` of a registered function."""
    kind = _kind(options)
    if kind == "command":
        return {"name": os.path.basename(options["command"][0]) or "job", "task": _command(options)}
    if kind == "function":
        call = _call(options)
        return {"name": options["function"], **({"payload": call} if call else {})}
    if kind == "python":
        task = {"kind": "python", "entry": options["python"], **_call(options)}
        return {"name": options["python"].rpartition(":")[2] or options["python"], "task": task}
    if kind == "http":
        return {"name": urlsplit(options["http"]).hostname or "http", "task": _request(options)}
    if kind in ("bundle", "container"):
        return {"name": _program_name(options), "task": _packed(kind, options)}
    return {"name": "noop", "task": {"kind": "noop"}}


def _program_name(options: Options) -> str:
    """Names a job after its program, or after the image of a container that runs its own."""
    if options["command"]:
        return os.path.basename(options["command"][0]) or "job"
    image = (options["container"] or "bundle").rpartition("/")[2]
    return image.partition("@")[0].partition(":")[0] or "job"


def _packed(kind: str, options: Options) -> dict[str, Any]:
    what = {"bundle_id": options["bundle"]} if kind == "bundle" else {"image": options["container"]}
    task: dict[str, Any] = {"kind": kind, **what}
    if options["command"]:
        task["argv"] = list(options["command"])
    return {**task, **_around(options)}


def _around(options: Options) -> dict[str, Any]:
    task: dict[str, Any] = {}
    if options.get("env"):
        task["env"] = dict(options["env"])
    if options.get("input"):
        task["inputs"] = dict(options["input"])
    return task


def _kind(options: Options) -> str:
    for kind in KINDS:
        if options.get(kind) == "":  # an unset variable: the command must not run without it
            raise click.UsageError(f"--{kind} is empty")
    given = [kind for kind in KINDS if options.get(kind)]
    if given[:1] == ["command"] and given[1:] in (["bundle"], ["container"]):
        given = given[1:]  # the command is what runs in there
    if not given:
        raise click.UsageError(
            "name what to run: -- COMMAND ARGS…, or --bundle, --container, --function, --python"
            " or --http"
        )
    if len(given) > 1:
        named = " and ".join(_option(kind) for kind in given)
        raise click.UsageError(f"{named}: a job can run only one of them")
    for name, kinds in BELONGS.items():
        if options.get(name) and given[0] not in kinds:
            places = " or ".join(
                "a command" if kind == "command" else f"--{kind}" for kind in kinds
            )
            raise click.UsageError(f"--{name} goes with {places}")
    return given[0]


def _option(kind: str) -> str:
    return "a command" if kind == "command" else f"--{kind}"


def _command(options: Options) -> dict[str, Any]:
    task: dict[str, Any] = {"kind": "command", "argv": list(options["command"]), **_around(options)}
    if options.get("cwd") is not None:
        task["cwd"] = os.path.abspath(options["cwd"])
    return task


def _call(options: Options) -> dict[str, Any]:
    call: dict[str, Any] = {}
    if options["args"] is not None:
        call["args"] = read_json(options["args"], "--args")
        if not isinstance(call["args"], list):
            raise click.BadParameter("a JSON list, such as [42]", param_hint="'--args'")
    if options["kwargs"] is not None:
        call["kwargs"] = read_json(options["kwargs"], "--kwargs")
        if not isinstance(call["kwargs"], dict):
            raise click.BadParameter('a JSON object, such as {"n": 42}', param_hint="'--kwargs'")
    return call


def _request(options: Options) -> dict[str, Any]:
    body = None if options["body"] is None else _body(options["body"])
    method = options["method"] or ("GET" if body is None else "POST")
    task: dict[str, Any] = {"kind": "http", "url": options["http"], "method": method.upper()}
    if options["header"]:
        task["headers"] = dict(options["header"])
    if body is not None:
        task["body"] = body
    return task


def _body(text: str) -> Any:
    """Reads JSON, or else text."""
    content = read_content(text, "--body")
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return content.decode("utf-8", "replace")


def terms_of(
    options: Options, dependencies: Sequence[Mapping[str, str]], now: datetime
) -> dict[str, Any]:
    """Builds everything that was given but the name and the task."""
    parts: dict[str, Any] = {
        "queue": options["queue"],
        "tenant": options["tenant"],
        "priority": options["priority"],
        "requirements": _requirements(options),
        "dependencies": list(dependencies),
        "run_at": _run_at(options, now),
        "expires_at": options["expires_at"],
        "finish_by": options["finish_by"],
        "timeout": options["timeout"],
        "expected_runtime": options["expected_runtime"],
        "preemptible": options["preemptible"] or None,
        "retry": _retry(options),
        "affinity": _affinity(options),
        "semantics": "at_most_once" if options["at_most_once"] else None,
        "concurrency": _concurrency(options),
        "labels": dict(options["label"]),
        "count": options["count"],
        "max_parallel": options["max_parallel"],
        "gang": None if options["gang"] is None else {"size": options["gang"]},
    }
    terms = _without_empty(parts)
    if options["payload"] is not None:
        terms["payload"] = read_json(options["payload"], "--payload")
    return terms


def _without_empty(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value not in (None, {}, [])}


def _run_at(options: Options, now: datetime) -> datetime | None:
    given: datetime | None = options["run_at"]
    if options["run_in"] is None:
        return given
    if given is not None:
        raise click.UsageError("--at and --in both set the start: give one of them")
    return now + timedelta(milliseconds=options["run_in"].ms)


def job_of(options: Options, terms: Mapping[str, Any]) -> dict[str, Any]:
    """Builds the whole job; one that runs a registered function has no task."""
    run = run_of(options)
    if "payload" in run and "payload" in terms:
        raise click.UsageError(
            "--payload and --args or --kwargs both set the arguments: give one of them"
        )
    if options["name"] is not None and options["function"] is None:
        run["name"] = options["name"]
    elif options["name"] is not None:
        raise click.UsageError("--function is the job's name already")
    return {**run, **terms}


def _requirements(options: Options) -> dict[str, Any]:
    parts = {
        "cpu": options["cpu"],
        "memory": options["memory"],
        "storage": options["storage"],
        "gpu": options["gpu"],
        "custom": custom_of(options["custom"]),
        "capabilities": list(options["capability"]),
    }
    return _without_empty(parts)


def _affinity(options: Options) -> dict[str, Any]:
    parts = {
        "require": _values(options["require"]),
        "prefer": _values(options["prefer"]),
        "spread": options["spread"],
        "near": "previous" if options["near_previous"] else None,
        "tolerate": list(options["tolerate"]),
    }
    wishes = _without_empty(parts)
    if options["place_wait"] is not None:
        if not wishes.keys() & {"prefer", "spread", "near"}:
            raise click.UsageError("--place-wait needs --prefer, --spread or --near-previous")
        wishes["wait"] = options["place_wait"]
    return wishes


def _values(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Groups values by label: the same label twice means either value."""
    values: dict[str, list[str]] = {}
    for label, value in pairs:
        values.setdefault(label, []).append(value)
    return values


def custom_of(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Reads amounts of custom resources."""
    return {name: _number(name, value) for name, value in pairs}


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        hint = "'--custom'"
        raise click.BadParameter(f"{name}={value}: {value!r} is not a number", param_hint=hint)
    return number


def _retry(options: Options) -> dict[str, Any] | None:
    parts = {
        **(retry_of(options["retries"], options["backoff"], options["delay"]) or {}),
        "memory_factor": options["memory_factor"],
        "memory_max": options["memory_max"],
    }
    return _without_empty(parts) or None


def retry_of(
    retries: int | None, backoff: str | None, delay: Duration | None
) -> dict[str, Any] | None:
    """Builds the retry policy; `--retries N` means N attempts after the first."""
    parts = {
        "max_attempts": None if retries is None else retries + 1,
        "backoff": backoff,
        "delay": delay,
    }
    return without_none(parts) or None


def _concurrency(options: Options) -> dict[str, Any] | None:
    if options["concurrency_key"] is None:
        if options["concurrency_limit"] is not None:
            raise click.UsageError("--concurrency-limit needs a --concurrency-key")
        return None
    limit = options["concurrency_limit"]
    return {"key": options["concurrency_key"], **({} if limit is None else {"limit": limit})}


def split_after(text: str) -> tuple[str, str]:
    """Reads `ID` or `ID:when`."""
    job, colon, when = text.partition(":")
    if colon and when not in ("succeeded", "finished", "failed"):
        raise click.BadParameter(
            f"{when!r} is not one of succeeded, finished, failed", param_hint="'--after'"
        )
    return job, when or "succeeded"
