"""Required labels, and workers that are reserved for some jobs."""

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


def test_any_of_several_values_of_a_required_label_is_enough() -> None:
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


def test_a_worker_that_registers_with_another_label_changes_its_class() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.submit("j", affinity=ZONE_A)
    assert world.take("w1") == []
    world.register("w1", labels={"zone": "a"}, session="s2")
    assert world.take("w1") == ["j"]


def test_a_worker_without_a_host_label_counts_as_a_host_of_its_own() -> None:
    world = World()
    world.register("w1")
    world.register("w2")
    world.submit("j", affinity=Affinity(require=(("host", ("w2",)),)))
    assert world.take("w1") == []
    assert world.take("w2") == ["j"]


def test_required_labels_still_hold_after_a_restart() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.register("w2", labels={"zone": "a"})
    world.submit("j", affinity=ZONE_A)
    world.restart()
    assert world.take("w1") == []
    assert world.take("w2") == ["j"]


def test_an_explanation_names_the_missing_label_and_workers_that_lack_it() -> None:
    world = World()
    world.register("w1", labels={"zone": "b"})
    world.submit("j", affinity=ZONE_A)
    (cause,) = world.why("j").causes
    assert cause.code == "impossible"
    assert "none has the label zone=a; without that 1 worker could" in cause.message


# Workers that are kept for some jobs


def test_a_worker_reserved_for_gpu_jobs_takes_no_other() -> None:
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
def test_a_job_gets_a_reserved_worker_by_resource_capability_or_toleration(
    asked: dict[str, object],
) -> None:
    world = World()
    has = {"custom": {"licence": 1}, "capabilities": ("licence",)}
    world.register("w1", only=("licence", "other"), **has)
    world.submit("j", **asked)
    assert world.take("w1") == ["j"]
