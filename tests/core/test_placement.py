from __future__ import annotations

import pytest

from rota.core.model import JobState
from rota.core.resources import NOTHING, fits, minus, plus, shortfalls, total
from tests.core.asking import GIB, job, resources
from tests.core.world import World


def test_ten_jobs_of_a_tenth_of_a_cpu_fill_one_cpu_exactly() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job(f"j{n}", cpu=0.1) for n in range(11)])
    assert len(world.take()) == 10
    assert world.state("j10") is JobState.QUEUED
    world.complete("j3")
    assert world.take() == ["j10"]


def test_a_job_goes_only_where_its_capabilities_are() -> None:
    world = World()
    world.register("plain")
    world.register("able", capabilities=["linux", "ffmpeg"])
    plain, able = world.poll("plain"), world.poll("able")
    world.submit("a", capabilities=["ffmpeg"])
    assert (world.orders(plain), world.orders(able)) == ([], ["a"])


def test_a_worker_serves_only_its_queues() -> None:
    world = World()
    world.register(queues=["mail", "reports"])
    world.submit("other")
    world.submit("mine", queue="reports")
    assert world.take() == ["mine"]


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu": 5},
        {"memory": 9 * GIB},
        {"storage": 51 * GIB},
        {"gpu": 2},
        {"custom": {"licence": 3}},
        {"custom": {"unheard-of": 1}},
    ],
)
def test_no_worker_gets_more_of_any_resource_than_it_has(asked: dict[str, object]) -> None:
    world = World()
    world.register(cpu=4, memory=8 * GIB, storage=50 * GIB, gpu=1, custom={"licence": 2})
    world.submit("too-big", **asked)
    world.submit("fits", cpu=4, memory=8 * GIB, storage=50 * GIB, gpu=1, custom={"licence": 2})
    assert world.take() == ["fits"]


def test_custom_resources_are_shared_and_given_back() -> None:
    world = World()
    world.register(cpu=64, custom={"licence": 2})
    world.submit_all([job(f"j{n}", custom={"licence": 1}) for n in range(4)])
    assert world.take() == ["j0", "j1"]
    world.complete("j0")
    assert world.take() == ["j2"]


def test_a_job_goes_to_the_worker_with_the_tightest_fit() -> None:
    world = World()
    for name, cpu in (("eight", 8), ("two", 2), ("four", 4)):
        world.register(name, cpu=cpu)
    polls = {name: world.poll(name) for name in ("eight", "two", "four")}
    world.submit("a", cpu=2)
    assert world.orders(polls["two"]) == ["a"]
    world.submit("b", cpu=3)
    assert world.orders(polls["four"]) == ["b"]


def test_a_part_used_worker_is_filled_before_an_idle_one_like_it() -> None:
    world = World()
    world.register("first", cpu=4)
    world.register("second", cpu=4)
    world.submit("a")
    assert world.take("second") == ["a"]
    first, second = world.poll("first"), world.poll("second")
    world.submit("b")
    assert (world.orders(first), world.orders(second)) == ([], ["b"])


def test_plain_jobs_avoid_a_gpu_machine_while_another_is_free() -> None:
    world = World()
    world.register("gpu", cpu=2, gpu=1)
    world.register("plain", cpu=64)
    gpu, plain = world.poll("gpu"), world.poll("plain")
    world.submit("a", cpu=2)
    assert (world.orders(gpu), world.orders(plain)) == ([], ["a"])
    world.submit("b", cpu=2)
    assert world.orders(gpu) == ["b"], "no other waits: better there than not at all"


def test_a_gpu_job_goes_to_a_gpu_machine() -> None:
    world = World()
    world.register("gpu", cpu=2, gpu=1)
    world.register("plain", cpu=2)
    gpu = world.poll("gpu")
    world.poll("plain")
    world.submit("a", gpu=0.5)
    assert world.orders(gpu) == ["a"]


def test_of_equal_workers_the_one_registered_first_gets_the_job() -> None:
    world = World()
    for name in ("b", "a", "c"):
        world.register(name)
    polls = {name: world.poll(name) for name in ("c", "a", "b")}
    world.submit("x")
    assert world.orders(polls["b"]) == ["x"]


def test_jobs_go_only_to_workers_with_an_open_poll() -> None:
    world = World()
    world.register("best", cpu=1)
    world.register("other", cpu=8)
    other = world.poll("other")
    world.submit("a", cpu=1)
    assert world.orders(other) == ["a"]


def test_a_worker_that_came_back_smaller_gets_nothing_until_it_has_free_capacity() -> None:
    world = World()
    world.may_shrink = True
    world.register(cpu=4)
    world.submit_all([job("a", cpu=2), job("b", cpu=2), job("c", cpu=1)])
    assert world.take() == ["a", "b"]
    world.register(cpu=2, session="s2")
    assert world.take(names=["a", "b"]) == []
    world.complete("a")
    assert world.take() == []
    world.complete("b")
    assert world.take() == ["c"]


def test_a_job_that_asks_for_nothing_fits_a_full_worker() -> None:
    world = World()
    world.register(cpu=1)
    world.submit("full", cpu=1)
    world.submit("nothing", cpu=0)
    assert world.take() == ["full", "nothing"]


def test_shortfalls_are_empty_exactly_when_a_job_fits() -> None:
    free = resources(cpu=1, memory=5, custom={"a": 1})
    for need in (
        resources(cpu=1, memory=5, custom={"a": 1}),
        resources(cpu=1.001),
        resources(memory=6),
        resources(custom={"a": 1.5}),
        resources(custom={"b": 1}),
        resources(custom={"b": 0}),
        resources(gpu=1),
        resources(),
    ):
        assert fits(need, free) == (not shortfalls(need, free))


def test_sums_come_out_even() -> None:
    parts = [resources(cpu=0.1, custom={"x": 0.3}) for _ in range(10)]
    whole = total(parts)
    assert (whole.cpu_milli, whole.custom) == (1_000, (("x", 3_000),))
    left = whole
    for part in parts:
        left = minus(left, part)
    assert left == NOTHING
    assert plus(left, whole) == whole


def test_the_best_fit_is_found_among_many_open_workers() -> None:
    world = World()
    polls = {}
    for cpu in range(40, 0, -1):
        world.register(f"w{cpu}", cpu=cpu)
        polls[cpu] = world.poll(f"w{cpu}", wait_ms=60_000)
    for cpu in (17, 3, 40, 1):
        world.submit(f"wants-{cpu}", cpu=cpu)
        assert world.orders(polls[cpu]) == [f"wants-{cpu}"]
    world.submit("next-best", cpu=17)
    assert world.orders(polls[18]) == ["next-best"]
    world.submit("nobody", cpu=40)
    assert world.state("nobody") is JobState.QUEUED
    world.complete("wants-40")
    world.poll("w40")
    assert world.state("nobody") is JobState.RUNNING
