"""What `rota bench` found: figures, what each cost the server, and what held it back."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

BUSY = 0.75
"""Of one core, or of the time: more than this and it is what the rest waits for."""
_SAMPLE = re.compile(
    r"^(process_cpu_seconds_total|rota_append_seconds_sum|rota_append_seconds_count) (\S+)", re.M
)


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Counters at one moment; all but the first are the server's own, as its metrics tell them."""

    at_s: float
    here_cpu_s: float
    """Of this process: whoever measures works, too."""
    server_cpu_s: float = 0.0
    append_s: float = 0.0
    appends: float = 0.0


def spent(metrics: str, at_s: float, here_cpu_s: float) -> Spent:
    """What a page of metrics says; a counter that is not there is one that stands still."""
    told = {name: float(value) for name, value in _SAMPLE.findall(metrics)}
    return Spent(
        at_s=at_s,
        here_cpu_s=here_cpu_s,
        server_cpu_s=told.get("process_cpu_seconds_total", 0.0),
        append_s=told.get("rota_append_seconds_sum", 0.0),
        appends=told.get("rota_append_seconds_count", 0.0),
    )


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement took of everybody while it lasted."""

    server_cores: float
    here_cores: float
    append_share: float
    """Of the time, in which an append to the journal was under way: disk or database."""
    append_ms: float
    """One append, on average."""


def cost(before: Spent, after: Spent) -> Cost:
    """The difference of two moments."""
    took_s = max(after.at_s - before.at_s, 1e-9)
    appends = after.appends - before.appends
    append_s = after.append_s - before.append_s
    return Cost(
        server_cores=(after.server_cpu_s - before.server_cpu_s) / took_s,
        here_cores=(after.here_cpu_s - before.here_cpu_s) / took_s,
        append_share=append_s / took_s,
        append_ms=append_s / appends * 1_000 if appends else 0.0,
    )


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: a rate, or times in milliseconds."""

    name: str
    setting: str
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    count: int = 0
    """How many jobs or calls it rests on."""
    limit: str = ""
    """What held it back, as far as can be seen from outside."""
    cost: Cost | None = None


class Result(msgspec.Struct, kw_only=True):
    """All of a bench, as `--json` prints it."""

    url: str
    version: str
    tag: str
    figures: list[Figure] = []
    notes: list[str] = []
    submitted: int = 0
    removed: int = 0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many per cent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def limit_of_rate(cost: Cost, *, held_back: bool) -> str:
    """What a rate waits for: the busiest of those that can be seen."""
    if held_back:
        return "the server's limit of requests for one token (--rate-limit)"
    choices = (
        (cost.server_cores, f"the server's processor: {cost.server_cores:.0%} of a core"),
        (cost.append_share, f"disk or database: {cost.append_share:.0%} of the time in appends"),
        (cost.here_cores, f"this machine that measures: {cost.here_cores:.0%} of a core"),
    )
    share, words = max(choices)
    if share >= BUSY:
        return words
    return f"round trips, or others on these machines; next {words}"


def limit_of_call(call_ms: float, network_ms: float, cost: Cost) -> str:
    """Where the time of one durable call goes."""
    rest = max(0.0, call_ms - network_ms - cost.append_ms)
    parts = (
        (network_ms, "the way there and back"),
        (cost.append_ms, "disk or database"),
        (rest, "the server"),
    )
    return ", ".join(f"{ms:.1f} ms {words}" for ms, words in sorted(parts, reverse=True))
