"""Options of job functions, and the job that a submission makes of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

import msgspec

from rota.wire.formats import dec_hook, parse_duration
from rota.wire.jobs import JobSpec

Length: TypeAlias = float | str | timedelta
"""A length of time: seconds, text such as "5m", or a timedelta."""
Size: TypeAlias = int | str
"""An amount of bytes: a number, or text such as "256MiB"."""
Moment: TypeAlias = datetime | str
"""An aware datetime, or RFC 3339 text."""


class HasId(Protocol):
    """Handle of a job."""

    @property
    def id(self) -> str: ...


Dependency: TypeAlias = HasId | str | Mapping[str, str]
"""A job's handle, its id, or `{"job_id": …, "when": "succeeded" | "finished" | "failed"}`."""


class JobOptions(TypedDict, total=False):
    """Options of all jobs of an app or a function, unless a call overrides them."""

    queue: str
    tenant: str
    priority: int
    retries: int
    """Attempts after the first one."""
    backoff: Literal["exponential", "linear", "fixed"]
    retry_delay: Length
    """Before the first retry."""
    retry_factor: float
    retry_max_delay: Length
    retry_jitter: float
    cpu: float
    memory: Size
    storage: Size
    gpu: float
    custom: Mapping[str, float]
    """Custom resources, such as licences."""
    capabilities: Sequence[str]
    affinity: Mapping[str, Any]
    """Affinity, as the API takes it: `{"require": {"zone": "a"}, "spread": "host"}`."""
    memory_factor: float
    """After running out of memory, request this many times as much."""
    memory_max: Size
    """Upper bound of the memory that `memory_factor` leads to."""
    timeout: Length | None
    expected_runtime: Length | None
    semantics: Literal["at_least_once", "at_most_once"]
    preemptible: bool
    labels: Mapping[str, str]
    finish_by: Moment | Length
    """Deadline, as a time or a duration after the submission; it only orders jobs and warns."""
    concurrency_key: str | Callable[..., str]
    """Jobs of one key run at most `concurrency_limit` at once; a callable gets the arguments."""
    concurrency_limit: int


class Declaration(JobOptions, total=False):
    """Options of `@app.job(…)`."""

    name: str
    """The function's name for workers and people; default: its own."""


class CallOptions(JobOptions, total=False):
    """Options of one submission."""

    run_at: Moment
    delay: Length
    """Starts this much later than now."""
    expires_at: Moment
    dependencies: Sequence[Dependency]
    count: int
    """Size of an array: the call runs this many times, each with its own `ctx.array.index`."""
    max_parallel: int
    """Members of the array that may be active at once."""
    gang: int
    """Size of a gang: copies that all start at once or not at all; see `ctx.gang`."""
    idempotency_key: str
    """A repetition with the same key returns the same job."""
    conn: Any
    """A PostgreSQL connection: the job exists once its transaction is committed."""


_RETRY = {
    "backoff": "backoff",
    "retry_delay": "delay",
    "retry_factor": "factor",
    "retry_max_delay": "max_delay",
    "retry_jitter": "jitter",
    "memory_factor": "memory_factor",
    "memory_max": "memory_max",
}
_NEEDS = ("cpu", "memory", "storage", "gpu", "custom", "capabilities")
_PLAIN = (
    *("queue", "tenant", "priority", "timeout", "expected_runtime", "semantics", "preemptible"),
    *("labels", "affinity", "run_at", "expires_at", "finish_by"),
)
CALL_OPTIONS = tuple(CallOptions.__annotations__)
DECLARATION = tuple(Declaration.__annotations__)


def check_names(given: Mapping[str, object], known: Sequence[str], where: str) -> None:
    """Raises TypeError for an option that does not exist."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f", did you mean {near[0]!r}?" if near else f"; options: {', '.join(known)}"
            raise TypeError(f"{where}: there is no option {name!r}{hint}")


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merges layers of options: later layers override earlier ones, but labels add up."""
    whole: dict[str, Any] = {}
    for layer in layers:
        labels = {**whole.get("labels", {}), **layer.get("labels", {})}
        whole.update(layer)
        if labels:
            whole["labels"] = labels
    return whole


def check_values(name: str, options: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that the server would refuse: when the module is imported, not
    when a job is submitted.
    """
    try:
        body = job_body(name, {**options, "concurrency_key": "x"})
        msgspec.convert(body, JobSpec, dec_hook=dec_hook)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"the options of {name}: {error}") from error


def job_body(name: str, options: Mapping[str, Any], now_ms: int = 0) -> dict[str, Any]:
    """Builds the job as the API takes it, without its payload; `concurrency_key` must be text by
    now.
    """
    body: dict[str, Any] = {"name": name}
    body |= {key: _wire(options[key]) for key in _PLAIN if key in options}
    if needs := {key: _wire(options[key]) for key in _NEEDS if key in options}:
        body["requirements"] = needs
    retry = {wire: _wire(options[key]) for key, wire in _RETRY.items() if key in options}
    if "retries" in options:
        retry["max_attempts"] = options["retries"] + 1
    if retry:
        body["retry"] = retry
    if options.get("concurrency_key") is not None:
        limit = options.get("concurrency_limit", 1)
        body["concurrency"] = {"key": options["concurrency_key"], "limit": limit}
    body |= {key: options[key] for key in ("count", "max_parallel") if key in options}
    if "gang" in options:
        body["gang"] = {"size": options["gang"]}
    if "delay" in options:
        body["run_at"] = _later(now_ms, options["delay"])
    if "dependencies" in options:
        body["dependencies"] = [_dependency(one) for one in options["dependencies"]]
    return body


def _wire(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _later(now_ms: int, delay: Length) -> datetime:
    wait_ms = parse_duration(_wire(delay)).ms
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms + wait_ms)


def _dependency(given: Dependency) -> str | dict[str, str]:
    if isinstance(given, str):
        return given
    return dict(given) if isinstance(given, Mapping) else given.id
