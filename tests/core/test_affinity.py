"""Affinity: preferred workers, the wait for them, and remedies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.commands import ClockJump, Deregister, Update
from rota.core.explain.remedies import remedies
from rota.core.model import Affinity, JobId, JobState, WorkerId
from rota.core.placement.feasibility import infeasible_reasons, value_of
from rota.core.policy import CONSERVATIVE, DEFAULT, STRICT, Policy
from tests.core.asking import SECOND, retries
from tests.core.world import World, run

ZONE_A = Affinity(require=(("zone", ("a",)),))
SSD = Affinity(prefer=(("disk", ("ssd",)),))
SPREAD = Affinity(spread="host")
NEAR = Affinity(near_previous=True)


def started_on(world: World, job_id: str) -> str | None:
    return world.life(job_id).worker_id


# Preferred labels


@pytest.mark.parametrize("policy", [STRICT, DEFAULT])
def test_a_preferred_worker_that_is_open_is_taken(policy: Policy) -> None:
    world = World(policy=policy)
    world.register("w1", cpu=1)
    world.register("w2", cpu=8, labels={"disk": "ssd"})
    world.poll("w1")
    world.poll("w2")
    world.submit("j", affinity=SSD)
    assert started_on(world, "j") == "w2"


@pytest.mark.parametrize("policy", [STRICT, DEFAULT])
def test_a_job_waits_for_a_preferred_worker_and_other_jobs_pass(policy: Policy) -> None:
    world = World(policy=policy)
    world.register("w1", cpu=2)
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1")
    world.submit("j", affinity=SSD)
    assert world.state("j") is JobState.QUEUED
    world.submit("other")
    assert started_on(world, "other") == "w1"
    world.poll("w2")
    assert started_on(world, "j") == "w2"


@pytest.mark.parametrize("policy", [STRICT, DEFAULT])
def test_a_job_whose_wait_is_over_starts_on_any_free_worker(policy: Policy) -> None:
    world = World(policy=policy)
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    world.submit("j", affinity=SSD)
    world.advance(2 * SECOND)
    assert world.state("j") is JobState.QUEUED
    world.advance(SECOND + 1)
    assert started_on(world, "j") == "w1"


def test_once_a_class_has_waited_its_next_jobs_do_not_wait_each() -> None:
    world = World()
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    for number in range(3):
        world.submit(f"j{number}", affinity=SSD)
    world.advance(4 * SECOND)
    assert [started_on(world, f"j{number}") for number in range(3)] == ["w1"] * 3


def test_a_job_does_not_wait_if_no_preferred_worker_exists() -> None:
    world = World()
    world.register("w1")
    world.submit("j", affinity=SSD)
    assert world.take("w1") == ["j"]


def test_without_a_wait_a_preference_only_decides_between_open_workers() -> None:
    world = World()
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.submit("j", affinity=Affinity(prefer=SSD.prefer, wait_ms=0))
    assert world.take("w1") == ["j"]


def test_an_explanation_names_the_preferred_worker_and_the_end_of_the_wait() -> None:
    world = World()
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    world.submit("j", affinity=SSD)
    explanation = world.why("j")
    (cause,) = explanation.causes
    assert cause.code == "affinity"
    assert (cause.figures["worker_id"], cause.figures["instead"]) == ("w2", "w1")
    assert "disk=ssd" in cause.message
    assert explanation.estimated_start == cause.figures["at"]
    world.advance(cause.figures["at"] - world.now)
    assert started_on(world, "j") == "w1"


def test_the_wait_for_a_preferred_worker_follows_the_clock() -> None:
    world = World()
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    world.submit("j", affinity=SSD)
    world.now += 3600 * SECOND
    world.step(ClockJump(by=3600 * SECOND))
    assert world.state("j") is JobState.QUEUED
    world.advance(3 * SECOND)
    assert started_on(world, "j") == "w1"


# Spreading


@pytest.mark.parametrize("policy", [STRICT, DEFAULT])
def test_jobs_of_a_name_are_spread_over_hosts(policy: Policy) -> None:
    world = World(policy=policy)
    for number in range(3):
        world.register(f"w{number}", labels={"host": f"h{number}"})
        world.poll(f"w{number}", wait_ms=20 * SECOND)
    for number in range(3):
        world.submit(f"j{number}", affinity=SPREAD)
    assert {started_on(world, f"j{n}") for n in range(3)} == {"w0", "w1", "w2"}


def test_a_worker_that_polls_first_does_not_get_all_spread_jobs() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.submit("j1", affinity=SPREAD)
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == ["j1"]
    assert world.take("w2") == ["j2"]


def test_queued_jobs_are_spread_evenly_over_workers_that_poll_one_by_one() -> None:
    world = World()
    for number in range(6):
        world.register(f"w{number}", labels={"zone": "ab"[number % 2]})
    wish = Affinity(spread="zone")
    for number in range(12):
        world.submit(f"j{number}", affinity=wish)
    for number in range(6):
        world.take(f"w{number}")
    places = [started_on(world, f"j{n}") for n in range(12)]
    zones = [int(place[1:]) % 2 for place in places if place is not None]
    assert len(zones) >= 6
    assert abs(zones.count(0) - zones.count(1)) <= 1


def test_jobs_that_cannot_be_spread_start_on_the_same_host() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", cpu=1, labels={"host": "h2"})
    world.submit("full")
    assert world.take("w2") == ["full"]
    world.submit("j1", affinity=SPREAD)
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == ["j1", "j2"]


def test_spreading_ignores_ended_jobs_and_jobs_of_another_name() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.submit("j1", affinity=SPREAD)
    run(world, "j1", "w1")
    world.submit("x", name="other", affinity=SPREAD)
    run(world, "x", "w1")
    world.complete("j1")
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == ["j2"]


def test_spreading_still_counts_running_jobs_after_a_restart() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.submit("j1", affinity=SPREAD)
    run(world, "j1", "w1")
    world.restart()
    world.heartbeat("w1", names=["j1"])
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == []
    assert world.take("w2") == ["j2"]


# Near the previous run


def test_a_retry_runs_near_the_attempt_before() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j", affinity=NEAR, retry=retries(2))
    run(world, "j", "w2")
    world.complete("j", "failed")
    world.poll("w1", wait_ms=20 * SECOND)
    world.advance(SECOND)
    assert world.state("j") is JobState.QUEUED
    assert world.take("w2") == ["j"]


def test_a_job_runs_near_its_upstream_job() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.register("w3", labels={"host": "h2"})
    world.submit("first")
    run(world, "first", "w2")
    world.submit("then", after=["first"], name="then", affinity=NEAR)
    world.complete("first")
    assert world.take("w1") == []
    assert world.take("w3") == ["then"]


def test_a_job_runs_near_the_last_of_its_name() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j1", affinity=NEAR)
    run(world, "j1", "w2")
    world.complete("j1")
    world.submit("j2", affinity=NEAR)
    assert world.take("w1") == []
    assert world.take("w2") == ["j2"]


def test_a_job_does_not_wait_for_a_preferred_worker_that_is_gone() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j1", affinity=NEAR)
    run(world, "j1", "w2")
    world.complete("j1")
    world.advance(60 * SECOND)
    world.submit("j2", affinity=NEAR)
    assert world.take("w1") == ["j2"]


def test_the_conservative_plan_looks_at_preferred_workers_first() -> None:
    world = World(policy=CONSERVATIVE)
    world.register("w1")
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1")
    world.poll("w2")
    world.submit("j", affinity=SSD)
    assert started_on(world, "j") == "w2"


def test_a_class_that_waits_for_a_worker_delays_no_reservation_of_others() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=2)
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    for number in range(3):
        world.submit(f"likes-{number}", affinity=SSD, runs_ms=SECOND)
    world.submit("big", cpu=2, runs_ms=SECOND)
    assert started_on(world, "big") == "w1"
    assert world.scheduler.why(JobId("likes-0"), world.now) is not None


# What would help


def helps(world: World, job_id: str) -> list[tuple[str, str]]:
    causes = world.why(job_id).causes
    found = remedies(world.scheduler._t, JobId(job_id), causes, world.now)
    return [(relief.code, relief.message) for relief in found]


def taken_up(world: World, job_id: str) -> None:
    """The first help is given, and the job starts as soon as its worker asks."""
    relief = remedies(world.scheduler._t, JobId(job_id), world.why(job_id).causes, world.now)[0]
    (change,) = relief.change
    assert isinstance(change, Update)
    revision = world.record(job_id).spec.revision
    spec = replace(change.spec, revision=revision)
    world.step(replace(change, spec=spec, preloaded=world.recall()))
    if world.state(job_id) is JobState.QUEUED:
        world.poll(relief.figures["worker_id"])
    assert started_on(world, job_id) == relief.figures["worker_id"]


def test_remedies_name_a_label_a_toleration_or_a_shorter_wait() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"}, only=("batch",))
    world.register("w2", labels={"zone": "b", "disk": "ssd"})
    world.submit("label", affinity=ZONE_A)
    assert helps(world, "label")[0][0] == "impossible"
    assert "did not require the label zone=a: worker w2" in helps(world, "label")[0][1]
    taken_up(world, "label")
    world.submit("kept", affinity=Affinity(require=(("host", ("w1",)),)))
    assert "asked for batch, or tolerated it" in helps(world, "kept")[0][1]
    taken_up(world, "kept")
    world.register("w3")
    world.poll("w3", wait_ms=20 * SECOND)
    world.submit("likes", affinity=SSD)
    ((code, text),) = helps(world, "likes")
    assert (code, "worker w3 has room" in text) == ("affinity", True)
    taken_up(world, "likes")


def test_a_remedy_names_an_online_worker() -> None:
    world = World()
    world.register("gone", labels={"zone": "b"})
    world.register("here", labels={"zone": "b"})
    world.step(Deregister(worker_id=WorkerId("gone")))
    world.submit("label", affinity=ZONE_A)
    other, new = helps(world, "label")
    assert "worker here lacks nothing else" in other[1]
    assert new[1] == "if a worker with 1 cpu, label zone=a came for queue default"


# Whatever is wished for

_LABELS = st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from("ab"))
_WANTED = st.dictionaries(
    st.sampled_from(["zone", "disk", "host"]), st.sampled_from(["a", "b", "w0", "w1"]), max_size=2
).map(lambda wanted: tuple((label, (value,)) for label, value in sorted(wanted.items())))
_WISHES = st.builds(
    Affinity,
    require=_WANTED,
    prefer=_WANTED,
    spread=st.sampled_from(["", "host", "zone"]),
    near_previous=st.booleans(),
    wait_ms=st.sampled_from([0, 3_000, 10_000]),
    tolerate=st.sampled_from([(), ("batch",)]),
)
_WORKERS = st.lists(
    st.tuples(_LABELS, st.sampled_from([(), ("batch",)]), st.integers(1, 4)), min_size=1, max_size=4
)


@settings(max_examples=40, deadline=None)
@given(_WORKERS, st.lists(_WISHES, min_size=1, max_size=8), st.sampled_from([STRICT, DEFAULT]))
def test_every_job_starts_on_an_allowed_worker_or_has_an_explanation(
    workers: list[tuple[dict[str, str], tuple[str, ...], int]],
    wishes: list[Affinity],
    policy: Policy,
) -> None:
    """After the longest wait, whoever waits has a reason that is no wish; and no must is broken."""
    world = World(policy=policy)
    for number, (labels, only, cpu) in enumerate(workers):
        world.register(f"w{number}", labels=labels, only=only, cpu=cpu)
    for number in range(len(workers)):
        world.poll(f"w{number}", wait_ms=60 * SECOND)
    for number, wish in enumerate(wishes):
        world.submit(f"j{number}", affinity=wish, runs_ms=1 * SECOND)
        waits = [n for n in range(number + 1) if world.state(f"j{n}") is JobState.QUEUED]
        assert all(world.causes(f"j{n}") for n in waits), "free to go, and did not go"
    for _ in range(3):
        world.advance(10 * SECOND)
        for number in range(len(workers)):
            jobs = (f"j{n}" for n in range(len(wishes)))
            world.heartbeat(
                f"w{number}", names=[j for j in jobs if started_on(world, j) == f"w{number}"]
            )
    for number, wish in enumerate(wishes):
        life = world.life(f"j{number}")
        if life.state is JobState.QUEUED:
            assert "affinity" not in world.causes(f"j{number}")
            continue
        entry = world.scheduler._t.fleet.workers[life.worker_id or WorkerId("")]
        needs = world.record(f"j{number}").spec.terms.needs
        assert not infeasible_reasons("default", needs, entry.machine)
        for label, values in wish.require:
            assert value_of(entry.worker, label) in values
