"""Makes workloads up: arrivals at random, run times as wide apart as wanted, one seed, one load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from rota.core.model import Millis, Needs, Terms
from rota.simulate.workload import ONCE, Work, cpu_needs

RUN_MS_MAX: Millis = 30 * 86_400_000
"""However wide the spread, nothing runs longer than a month."""


class SyntheticSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a made-up workload is like."""

    jobs: int = 10_000
    rate: float = 1.0
    """Arrivals a second, on average; 0: all at once."""
    run_ms: Millis = 60_000
    """The mean run time."""
    spread: float = 1.0
    """The standard deviation of its logarithm; 0: all run equally long."""
    cpu_min: int = 1
    cpu_max: int = 1
    memory: int = 0
    tenants: int = 1
    overestimate: float | None = 1.0
    """How often too long the mean estimate is; None: nobody says how long it will take."""
    seed: int = 1

    @property
    def cpu_ms(self) -> float:
        """Processor time of a job, on average."""
        return self.run_ms * (self.cpu_min + self.cpu_max) / 2


class SyntheticWorkload:
    """A workload by a recipe. It is made anew each time it is walked through: it may be long."""

    dropped = 0

    def __init__(self, recipe: SyntheticSpec) -> None:
        self.spec = recipe
        self.title = f"synthetic, seed {recipe.seed}"

    def __len__(self) -> int:
        return self.spec.jobs

    def __iter__(self) -> Iterator[Work]:
        recipe = self.spec
        median_ms = recipe.run_ms / math.exp(recipe.spread**2 / 2)
        shared: dict[tuple[int, int], Terms] = {}
        at_s = 0.0
        for place in range(recipe.jobs):
            gap, one, two, size, whose, belief = _random_numbers(recipe.seed, place)
            if place and recipe.rate:
                at_s -= math.log(1 - gap) / recipe.rate
            # Two even dice make one normal one (Box and Muller).
            normal = math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * two)
            run_ms = min(RUN_MS_MAX, max(1, round(median_ms * math.exp(recipe.spread * normal))))
            cpus = recipe.cpu_min + int(size * (recipe.cpu_max - recipe.cpu_min + 1))
            key = (cpus, int(whose * recipe.tenants))
            terms = shared.get(key)
            if terms is None:
                terms = shared[key] = self._terms(*key)
            if recipe.overestimate is not None:
                factor = 1 + 2 * belief * (recipe.overestimate - 1)
                terms = msgspec.structs.replace(terms, expected_runtime_ms=round(run_ms * factor))
            yield Work(str(place + 1), round(at_s * 1000), run_ms, terms)

    def needs(self, cpus: int) -> Needs:
        """What a job of so many processors asks for."""
        return cpu_needs(1000 * cpus, self.spec.memory)

    def _terms(self, cpus: int, tenant: int) -> Terms:
        return Terms(
            name=f"of-{cpus}",
            queue="default",
            tenant=f"t{tenant + 1}" if self.spec.tenants > 1 else "default",
            priority=0,
            needs=self.needs(cpus),
            retry=ONCE,
        )


def _random_numbers(seed: int, place: int) -> tuple[float, ...]:
    """Six numbers in [0, 1) for each place: from a hash, so that any run makes the same ones."""
    digest = blake2b(f"{seed}/{place}".encode(), digest_size=48).digest()
    return tuple(int.from_bytes(digest[at : at + 6], "big") / (1 << 48) for at in range(0, 36, 6))
