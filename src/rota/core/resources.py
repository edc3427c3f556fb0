"""Arithmetic on amounts of resources. Whole numbers, so that sums are exact."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import msgspec

from rota.core.model import Resources

NOTHING = Resources()


class Shortfall(msgspec.Struct, frozen=True, gc=False):
    """Kind of resource that a worker has too little of, in the core's units."""

    kind: str
    asked: int
    there: int


def plus(a: Resources, b: Resources) -> Resources:
    return Resources(
        a.cpu_milli + b.cpu_milli,
        a.memory + b.memory,
        a.storage + b.storage,
        a.gpu_milli + b.gpu_milli,
        _merge(a.custom, b.custom, 1) if b.custom else a.custom,
    )


def minus(a: Resources, b: Resources) -> Resources:
    """Difference of two amounts; negative where a worker's capacity shrank below what it holds."""
    return Resources(
        a.cpu_milli - b.cpu_milli,
        a.memory - b.memory,
        a.storage - b.storage,
        a.gpu_milli - b.gpu_milli,
        _merge(a.custom, b.custom, -1) if b.custom else a.custom,
    )


def _merge(
    a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...], sign: int
) -> tuple[tuple[str, int], ...]:
    """Merges custom amounts without zeros, so that equal amounts compare equal."""
    amounts = dict(a)
    for name, amount in b:
        amounts[name] = amounts.get(name, 0) + sign * amount
    return tuple(sorted(item for item in amounts.items() if item[1]))


def total(amounts: Iterable[Resources]) -> Resources:
    """Sum of all amounts. Alike jobs share one object, so runs of it are multiplied, not added."""
    result = NOTHING
    for _, same in groupby(amounts, id):
        alike = list(same)
        result = plus(result, multiplied(alike[0], len(alike)))
    return result


def left_of(capacity: Resources, held: Iterable[Resources]) -> Resources:
    """Free capacity of a worker that holds these amounts."""
    return minus(plus(NOTHING, capacity), total(held))


def fits(need: Resources, free: Resources) -> bool:
    """Whether `need` fits into `free`. Kinds that are not asked for are ignored."""
    return (
        (need.cpu_milli <= free.cpu_milli or not need.cpu_milli)
        and (need.memory <= free.memory or not need.memory)
        and (need.storage <= free.storage or not need.storage)
        and (need.gpu_milli <= free.gpu_milli or not need.gpu_milli)
        and (not need.custom or _custom_fits(need.custom, free.custom))
    )


def how_often_fits(need: Resources, free: Resources, most: int) -> int:
    """How many times `need` fits into `free`, at most `most`; not even once: zero or negative."""
    if need.cpu_milli and free.cpu_milli < most * need.cpu_milli:
        most = free.cpu_milli // need.cpu_milli
    if need.memory and free.memory < most * need.memory:
        most = free.memory // need.memory
    if need.storage and free.storage < most * need.storage:
        most = free.storage // need.storage
    if need.gpu_milli and free.gpu_milli < most * need.gpu_milli:
        most = free.gpu_milli // need.gpu_milli
    if need.custom:
        there = dict(free.custom)
        for name, amount in need.custom:
            most = min(most, there.get(name, 0) // amount) if amount else most
    return most


def multiplied(amount: Resources, count: int) -> Resources:
    return Resources(
        amount.cpu_milli * count,
        amount.memory * count,
        amount.storage * count,
        amount.gpu_milli * count,
        tuple((name, one * count) for name, one in amount.custom),
    )


def _custom_fits(need: tuple[tuple[str, int], ...], free: tuple[tuple[str, int], ...]) -> bool:
    there = dict(free)
    return all(amount <= there.get(name, 0) for name, amount in need if amount)


def amounts(resources: Resources) -> list[tuple[str, int]]:
    """(kind, amount) of every kind of resource, the fixed ones first."""
    return [
        ("cpu", resources.cpu_milli),
        ("memory", resources.memory),
        ("storage", resources.storage),
        ("gpu", resources.gpu_milli),
        *resources.custom,
    ]


def shortfalls(need: Resources, free: Resources) -> tuple[Shortfall, ...]:
    """Kinds of resource that `free` has too little of; empty exactly where `fits` is true."""
    there = dict(amounts(free))
    return tuple(
        Shortfall(kind, amount, there.get(kind, 0))
        for kind, amount in amounts(need)
        if amount and amount > there.get(kind, 0)
    )


def amount_text(kind: str, amount: int) -> str:
    """Amount for messages: memory and storage in MiB or GiB, other kinds as numbers."""
    if kind not in ("memory", "storage"):
        return f"{amount / 1000:g} {kind}"
    unit, size = ("GiB", 1 << 30) if amount >= 1 << 30 else ("MiB", 1 << 20)
    return f"{amount / size:.4g} {unit} of {kind}"


def plain_amount(kind: str, amount: int) -> float:
    """Amount in the units of the API: cpus, gpus, bytes."""
    return amount if kind in ("memory", "storage") else amount / 1000


def shortfall_text(reason: str | Shortfall) -> str:
    """Message about a shortfall of a worker, or another reason as it is."""
    if isinstance(reason, Shortfall):
        asked, there = amount_text(reason.kind, reason.asked), reason.there
        return f"asks {asked}, has {amount_text(reason.kind, there)}"
    return reason
