"""Plan of a run, drawn from its seed: the cluster's size, actions of users, and faults.

All is drawn before the run begins, and each thing from its own random numbers, so that leaving out
a fault or an action (to find the smallest run that still fails) changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.simtest.rng import Rng, rng_for

FAULTS: Mapping[str, tuple[float, float]] = {
    "server killed": (0.2, 6.0),
    "server dies at its next step": (0.2, 5.0),
    "server frozen": (0.3, 9.0),
    "server stopped in order": (0.1, 2.0),
    "server's clock set": (2.0, 15.0),
    "server upgraded": (0.1, 0.5),
    "worker loses power": (0.2, 8.0),
    "worker dies at its next step": (0.2, 4.0),
    "job's machine dies at its next word": (0.2, 4.0),
    "agent killed": (0.2, 4.0),
    "agent frozen": (0.5, 20.0),
    "supervisor frozen": (0.5, 15.0),
    "worker frozen": (0.5, 20.0),
    "worker drained": (0.2, 2.0),
    "cut between server and worker": (0.5, 15.0),
    "worker not heard": (2.0, 20.0),
    "worker hears nothing": (0.5, 15.0),
    "worker hears late, then nothing": (5.0, 25.0),
    "cut between servers": (0.5, 12.0),
    "cut between client and server": (0.5, 12.0),
    "server alone": (0.5, 12.0),
    "server without database": (0.5, 25.0),
    "database away": (0.3, 8.0),
    "database slow": (1.0, 8.0),
    "database forgetful": (1.0, 12.0),
    "database late": (1.0, 12.0),
    "disk full": (0.5, 6.0),
    "projector killed": (0.5, 6.0),
    "projector frozen": (0.5, 8.0),
    "two projectors at once": (1.0, 10.0),
    "projector far behind": (0.5, 5.0),
    "one shard behind": (0.5, 6.0),
    "poison entry": (1.0, 8.0),
    "bytes flipped": (0.5, 5.0),
    "database fails over": (0.1, 0.5),
    "network storm": (1.0, 12.0),
    "network stalls": (1.0, 12.0),
    "requests doubled": (1.0, 15.0),
}
"""Kinds of faults, with how long each may last, in seconds."""

ACTIONS: Mapping[str, int] = {
    "plain": 6,
    "long": 5,
    "hog": 2,
    "flaky": 2,
    "once": 3,
    "chain": 2,
    "twice": 2,
    "keyed": 2,
    "late": 1,
    "timed": 1,
    "flock": 1,
    "cancel": 4,
}
"""Kinds of actions of users, with their weights. Keys of jobs begin with them, and are hashed."""
SHORT_ACTIONS: Mapping[str, int] = {"burst": 3}
"""Further actions where workers prefetch."""
GROUP_ACTIONS: Mapping[str, int] = {"array": 3, "gang": 2, "revive": 4, "delete": 2}
"""Further actions where `groups` is set."""

FAILOVER = "database fails over"
"""Fault that loses what clients were told: every promise is excused for lost records."""
PROFILES: Mapping[str, tuple[str, ...]] = {
    "all": tuple(k for k in FAULTS if k != FAILOVER),
    "servers": tuple(k for k in FAULTS if k.startswith(("server", "cut between servers"))),
    "workers": tuple(
        k
        for k in FAULTS
        if k.startswith(("worker", "agent", "supervisor", "job's")) or "and worker" in k
    ),
    "leases": (
        "worker hears late, then nothing",
        "worker not heard",
        "agent frozen",
        "server without database",
        "server frozen",
    ),
    "leader": (
        "server without database",
        "server frozen",
        "server killed",
        "server alone",
        "database late",
    ),
    "quiet": ("server without database",),
    "ahead": (
        "worker not heard",
        "worker hears nothing",
        "agent frozen",
        "agent killed",
        "worker drained",
        "server killed",
        "network storm",
        "requests doubled",
    ),
    "network": tuple(k for k in FAULTS if "cut" in k or "network" in k or "requests" in k),
    "store": tuple(k for k in FAULTS if ("database" in k or "disk" in k) and k != FAILOVER),
    "projection": (
        "projector killed",
        "projector frozen",
        "two projectors at once",
        "projector far behind",
        "one shard behind",
        "poison entry",
        "bytes flipped",
        "server killed",
        "database late",
    ),
    "failover": (
        FAILOVER,
        "server killed",
        "server frozen",
        "server without database",
        "one shard behind",
        "projector far behind",
    ),
    "calm": (),
}
"""Kinds of faults that a run draws from."""

MEMORY_JOBS = 100_000
"""So many jobs in memory that none is spilled."""
QUIET_ACTS_PER_S = 0.2
"""So few actions that only long jobs are submitted."""
FIXED: Mapping[str, Mapping[str, Any]] = {
    "leases": {"workers": 6, "delay_s": 0.001, "clocks_apart": True, "spare": 0},
    "leader": {"servers": 3, "leader_bias": 0.9, "spare": 0},
    "ahead": {"spare": 16, "acts_per_s": 1.5, "workers": 2},
    "projection": {"servers": 3, "groups": True},
    "failover": {"servers": 3, "groups": True, "leader_bias": 0.5, "older": 0},
    # A leader that has nothing to write does not notice by itself that it has lost leadership.
    "quiet": {
        "servers": 3,
        "lease_s": 3.0,
        "leader_ttl_s": 1.5,
        "leader_bias": 1.0,
        "acts_per_s": QUIET_ACTS_PER_S,
        "faults_per_min": 2.0,
        "loss": 0.0,
        "schedule": False,
        "spare": 0,
    },
}
"""Options that are not drawn: some faults matter only in one situation."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run, as printed."""

    servers: int
    workers: int
    lease_s: float
    leader_ttl_s: float
    storm_s: float
    """Faults begin and end within this."""
    acts_per_s: float
    faults_per_min: float
    leader_bias: float
    """Share of server faults that are meant for the leader."""
    delay_s: float
    loss: float
    clocks_apart: bool
    """Workers' clocks as slow as allowed, servers' as fast: the worst case for a lease."""
    schedule: bool
    """Whether a schedule is due every few seconds."""
    spare: int
    """Orders that a worker prefetches."""
    older: int
    """Servers that begin as a program of the last version."""
    memory_jobs: int
    """Waiting jobs that a leader keeps in memory; the others are spilled."""
    groups: bool
    """Whether users also submit arrays and gangs, and retry and delete jobs."""
    kinds: tuple[str, ...]


class Fault(msgspec.Struct, frozen=True):
    number: int
    kind: str
    at_s: float
    for_s: float


class Action(msgspec.Struct, frozen=True):
    """Action of a user."""

    number: int
    kind: str
    at_s: float


class SimulationPlan(msgspec.Struct, frozen=True):
    """Plan of a run: all that is drawn from its seed."""

    seed: int
    options: Options
    actions: tuple[Action, ...]
    faults: tuple[Fault, ...]

    def command(self, profile: str) -> str:
        """Returns the command that repeats exactly this run."""
        whole = draw(self.seed, profile=profile, storm_s=self.options.storm_s)
        words = [f"rota verify --seed {self.seed}"]
        if profile != "all":
            words.append(f"--profile {profile}")
        if self.options.storm_s != draw(self.seed, profile=profile).options.storm_s:
            words.append(f"--minutes {self.options.storm_s / 60:g}")
        for name, left, every in (
            ("faults", self.faults, whole.faults),
            ("acts", self.actions, whole.actions),
        ):
            if left != every:
                words.append(f"--{name} {spans([one.number for one in left])}")
        return " ".join(words)


def keep(plan: SimulationPlan, *, faults: str | None, actions: str | None) -> SimulationPlan:
    """Returns the plan with only these of its faults and actions; None: all of them."""
    kept = plan
    if faults is not None:
        chosen = read_spans(faults)
        kept = msgspec.structs.replace(
            kept, faults=tuple(one for one in plan.faults if one.number in chosen)
        )
    if actions is not None:
        chosen = read_spans(actions)
        kept = msgspec.structs.replace(
            kept, actions=tuple(one for one in plan.actions if one.number in chosen)
        )
    return kept


def spans(numbers: Sequence[int]) -> str:
    """Writes rising numbers as `1,3-5`; no numbers as `none`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, span)) for span in found) or "none"


def read_spans(text: str) -> dict[int, None]:
    """Reads what `spans` writes; raises ValueError for anything else."""
    numbers: dict[int, None] = {}
    for span in () if text == "none" else text.split(","):
        first, _, last = span.partition("-")
        numbers.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    return numbers


def draw(seed: int, *, profile: str = "all", storm_s: float | None = None) -> SimulationPlan:
    """Draws the run of a seed."""
    rng = rng_for(seed, "options", profile)
    kinds = PROFILES[profile]
    if len(kinds) > 6:
        # Each seed leaves some out: many kinds at once hide bugs that a few would show.
        kinds = tuple(rng.sample(list(kinds), rng.randint(3, len(kinds))))
    options = Options(
        servers=rng.choice((1, 2, 3, 3, 3)),
        workers=rng.randint(2, 4),
        lease_s=rng.choice((3.0, 5.0, 10.0)),
        leader_ttl_s=rng.choice((1.5, 3.0)),
        storm_s=storm_s or rng.choice((30.0, 45.0, 60.0)),
        acts_per_s=rng.choice((0.3, 0.7, 1.5, 3.0)),
        faults_per_min=rng.choice((6.0, 15.0, 30.0)),
        leader_bias=rng.choice((0.0, 0.5, 0.9)),
        delay_s=rng.choice((0.001, 0.005, 0.03)),
        loss=rng.choice((0.0, 0.0, 0.01, 0.05)) if kinds else 0.0,
        clocks_apart=rng.chance(0.2),
        schedule=rng.chance(0.7),
        spare=rng_for(seed, "spare").choice((0, 0, 4, 16)),
        older=rng_for(seed, "older").choice((0, 0, 0, 1, 2)),
        memory_jobs=rng_for(seed, "memory").choice((MEMORY_JOBS, MEMORY_JOBS, 12, 30)),
        groups=False,
        kinds=kinds,
    )
    options = msgspec.structs.replace(options, **FIXED.get(profile, {}))
    return SimulationPlan(seed, options, _actions(seed, options), _faults(seed, options))


def _moments(rng: Rng, per_s: float, end_s: float) -> list[float]:
    moments: list[float] = []
    at = rng.expovariate(per_s)
    while at < end_s:
        moments.append(at)
        at += rng.expovariate(per_s)
    return moments


def _actions(seed: int, options: Options) -> tuple[Action, ...]:
    moments = _moments(rng_for(seed, "when to act"), options.acts_per_s, options.storm_s)
    rng = rng_for(seed, "how to act")
    every = {"long": 1} if options.acts_per_s == QUIET_ACTS_PER_S else ACTIONS
    if options.spare:
        every = {**every, **SHORT_ACTIONS}
    if options.groups:
        every = {**every, **GROUP_ACTIONS}
    return tuple(
        Action(number, rng.choices(list(every), list(every.values()))[0], at)
        for number, at in enumerate(moments)
    )


def _faults(seed: int, options: Options) -> tuple[Fault, ...]:
    if not options.kinds:
        return ()
    rate = options.faults_per_min / 60
    moments = _moments(rng_for(seed, "when to fail"), rate, options.storm_s * 0.9)
    return tuple(_fault(seed, number, at, options) for number, at in enumerate(moments))


def _fault(seed: int, number: int, at: float, options: Options) -> Fault:
    rng = rng_for(seed, "fault", number)
    kind = rng.choice(options.kinds)
    shortest, longest = FAULTS[kind]
    for_s = min(rng.uniform(shortest, longest), options.storm_s - at)
    return Fault(number, kind, at, for_s)
