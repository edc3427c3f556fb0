"""Where a job must run: labels that it requires, and workers that are kept for some jobs."""

from __future__ import annotations

import pytest

from rota.core.model import Affinity
from tests.core.world import World

ZONE_A = Affinity(require=(("zone", ("a",)),))


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
    assert "take only jobs that ask for gpu; without that 1 worker could" in cause.message


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
