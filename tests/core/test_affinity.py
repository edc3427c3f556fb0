"""Where a job wants to run: labels, spreading, nearness, and workers that are kept apart."""

from __future__ import annotations

import pytest

from rota.core.affinity import Affinity
from rota.core.inputs import ClockJump
from rota.core.model import JobId, JobState
from rota.core.policy import CONSERVATIVE, DEFAULT, STRICT, Policy
from tests.core.asking import SECOND, retries
from tests.core.world import World, run

ZONE_A = Affinity(require=(("zone", ("a",)),))
SSD = Affinity(prefer=(("disk", ("ssd",)),))
SPREAD = Affinity(spread="host")
NEAR = Affinity(near_previous=True)


def started_on(world: World, job_id: str) -> str | None:
    return world.life(job_id).worker_id


# Required labels


def test_a_required_label_keeps_a_job_from_workers_without_it() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.register("w2", labels={"zone": "a"})
    world.submit("j", affinity=ZONE_A)
    assert world.take("w1") == []
    assert world.take("w2") == ["j"]


def test_any_of_several_values_will_do() -> None:
    world = World()
    world.register("w1", labels={"zone": "c"})
    world.submit("j", affinity=Affinity(require=(("zone", ("a", "c")),)))
    assert world.take("w1") == ["j"]


def test_a_worker_that_comes_later_with_the_label_gets_the_job() -> None:
    world = World()
    world.register("w1")
    world.submit("j", affinity=ZONE_A)
    assert world.take("w1") == []
    world.register("w2", labels={"zone": "a"})
    assert world.take("w2") == ["j"]


def test_a_worker_that_registers_again_with_another_label_is_another_place() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.submit("j", affinity=ZONE_A)
    assert world.take("w1") == []
    world.register("w1", labels={"zone": "a"}, session="s2")
    assert world.take("w1") == ["j"]


def test_a_worker_that_does_not_say_its_host_is_one_of_its_own() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j", affinity=Affinity(require=(("host", ("w2",)),)))
    assert world.take("w1") == []
    assert world.take("w2") == ["j"]


def test_labels_are_remembered_over_a_restart() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.register("w2", labels={"zone": "a"})
    world.submit("j", affinity=ZONE_A)
    world.restart()
    assert world.take("w1") == []
    assert world.take("w2") == ["j"]


def test_why_names_the_label_and_who_could_without_it() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.submit("j", affinity=ZONE_A)
    (cause,) = world.why("j").causes
    assert cause.code == "impossible"
    assert "none has the label zone=a; without that 1 worker could" in cause.message


# Workers that are kept for some jobs


def test_a_worker_kept_for_gpu_jobs_takes_no_other() -> None:
    world = World()
    world.register("w1", gpu=1, only=("gpu",))
    world.submit("plain")
    world.submit("train", gpu=1)
    assert world.take("w1") == ["train"]
    cause = world.why("plain").causes[0]
    assert cause.code == "impossible"
    assert "kept for jobs that ask for gpu; without that 1 worker could" in cause.message


@pytest.mark.parametrize(
    "asked",
    [
        {"custom": {"licence": 1}},
        {"capabilities": ("licence",)},
        {"affinity": Affinity(tolerate=("licence",))},
    ],
)
def test_asking_for_it_by_resource_capability_or_tolerance_opens_the_worker(
    asked: dict[str, object],
) -> None:
    world = World()
    has = {"custom": {"licence": 1}, "capabilities": ("licence",)}
    world.register("w1", only=("licence", "other"), **has)
    world.submit("j", **asked)
    assert world.take("w1") == ["j"]


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
def test_a_preferred_worker_is_waited_for_and_others_pass(policy: Policy) -> None:
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
def test_when_the_wait_is_over_it_goes_where_there_is_room(policy: Policy) -> None:
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


def test_nobody_is_waited_for_where_no_preferred_worker_is() -> None:
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


def test_why_says_what_it_waits_for_until_when_and_where_it_would_start() -> None:
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


def test_the_wait_follows_the_clock() -> None:
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


def test_a_worker_that_asks_first_does_not_get_them_all() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.submit("j1", affinity=SPREAD)
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == ["j1"]
    assert world.take("w2") == ["j2"]


def test_spreading_gives_way_where_there_is_no_room_elsewhere() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", cpu=1, labels={"host": "h2"})
    world.submit("full")
    assert world.take("w2") == ["full"]
    world.submit("j1", affinity=SPREAD)
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == ["j1", "j2"]


def test_what_has_ended_and_what_has_another_name_does_not_count() -> None:
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


def test_a_restart_knows_where_they_run() -> None:
    world = World()
    world.register("w1", labels={"host": "h1"})
    world.register("w2", labels={"host": "h2"})
    world.submit("j1", affinity=SPREAD)
    run(world, "j1", "w1")
    world.restart()
    world.beat("w1", names=["j1"])
    world.submit("j2", affinity=SPREAD)
    assert world.take("w1") == []
    assert world.take("w2") == ["j2"]


# Near the previous run


def test_a_retry_stays_near_the_try_before() -> None:
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


def test_a_job_runs_near_what_it_waited_for() -> None:
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


def test_a_place_that_is_gone_is_not_waited_for() -> None:
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


def test_a_class_that_waits_holds_up_no_reservation_of_others() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=2)
    world.register("w2", labels={"disk": "ssd"})
    world.poll("w1", wait_ms=20 * SECOND)
    for number in range(3):
        world.submit(f"likes-{number}", affinity=SSD, runs_ms=SECOND)
    world.submit("big", cpu=2, runs_ms=SECOND)
    assert started_on(world, "big") == "w1"
    assert world.scheduler.why(JobId("likes-0"), world.now) is not None
