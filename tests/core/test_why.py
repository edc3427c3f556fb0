from __future__ import annotations

import pytest

from rota.core.commands import Deregister, Drain
from rota.core.explain.why import duration_text
from rota.core.model import JobId, RateLimit, WorkerId
from rota.core.policy import DEFAULT
from tests.core.asking import GIB, HOUR, SECOND, job, retries
from tests.core.world import World, run


def first(world: World, job_id: str) -> tuple[str, str]:
    """Code and message of the first cause."""
    cause = world.why(job_id).causes[0]
    return cause.code, cause.message


def test_without_workers_why_says_how_to_start_one() -> None:
    world = World()
    world.submit("a")
    assert first(world, "a") == (
        "no_workers",
        "no worker has registered; start one with: rota worker",
    )


def test_a_job_that_no_worker_could_ever_run_is_explained_with_figures() -> None:
    world = World()
    world.register("small", cpu=2)
    world.register("large", cpu=8)
    world.submit("a", cpu=64)
    (cause,) = world.why("a").causes
    assert cause.code == "impossible"
    assert cause.message == ("no worker could ever run this: asks 64 cpu, the largest has 8 cpu")
    assert cause.figures["failing"] == {"cpu": 2}
    assert cause.figures["workers"] == 2


def test_the_requirement_that_fails_most_workers_is_named_and_the_nearest_worker() -> None:
    world = World()
    world.register("gpu", cpu=1, gpu=1, memory=GIB)
    world.register("cpu", cpu=64)
    world.submit("a", cpu=8, gpu=2, memory=4 * GIB, capabilities=["cuda"], queue="q")
    (cause,) = world.why("a").causes
    assert cause.code == "impossible"
    assert cause.figures["failing"] == {"cpu": 1, "gpu": 2, "memory": 2, "capability cuda": 2}
    assert cause.figures["nearest"] == "cpu"
    assert "asks 4 GiB of memory, has 0 MiB of memory" in cause.figures["nearest_lacks"]


def test_among_equally_near_workers_an_online_one_is_named() -> None:
    world = World()
    world.register("gone", cpu=2)
    world.register("here", cpu=2)
    world.step(Deregister(worker_id=WorkerId("gone")))
    world.submit("a", cpu=64)
    (cause,) = world.why("a").causes
    assert cause.figures["nearest"] == "here"


def test_a_missing_capability_or_queue_is_named() -> None:
    world = World()
    world.register(queues=["mail"])
    world.submit("a")
    assert first(world, "a")[1] == "no worker could ever run this: none serves queue default"
    world.submit("b", queue="mail", capabilities=["cuda"])
    assert first(world, "b")[1] == "no worker could ever run this: none has capability cuda"


def test_unavailable_workers_are_counted() -> None:
    world = World()
    for name in ("w1", "w2", "w3"):
        world.register(name)
    world.step(Drain(worker_id=WorkerId("w1")))
    world.step(Deregister(worker_id=WorkerId("w2")))
    world.step(Deregister(worker_id=WorkerId("w3")))
    world.submit("a")
    assert first(world, "a") == (
        "workers_away",
        "all workers that could run it are unavailable: 1 draining, 2 offline;"
        " resume one with: rota workers resume w1",
    )
    world.step(Deregister(worker_id=WorkerId("w1")))
    assert first(world, "a")[1] == "all workers that could run it are unavailable: 3 offline"


def test_a_drained_worker_would_help_if_it_were_resumed() -> None:
    world = World()
    world.register("w1")
    world.register("w2", cpu=2)
    world.step(Drain(worker_id=WorkerId("w1")))
    world.step(Deregister(worker_id=WorkerId("w2")))
    world.submit("a")
    why = world.why("a")
    resumed, back = world.scheduler.remedies(JobId("a"), why.causes, world.now)
    assert resumed.message == "if worker w1 were resumed"
    assert (resumed.figures, back.figures) == ({"workers": ["w1"]}, {"workers": ["w2"]})
    world.step(*resumed.change)
    assert world.take("w1") == ["a"]


def test_busy_resources_are_named_with_the_most_free_on_one_worker() -> None:
    world = World()
    world.register("w1", cpu=4)
    world.register("w2", cpu=4)
    for name in ("w1", "w2"):
        world.submit(f"on-{name}", cpu=2)
        run(world, f"on-{name}", name)
    world.submit("a", cpu=3)
    code, message = first(world, "a")
    assert code == "resources_busy"
    assert message == (
        "resources are busy: asks 3 cpu, the most free on one of 2 workers is 2 cpu"
        " (4 cpu in total, but spread over several)"
    )


def test_a_start_time_is_the_estimate() -> None:
    world = World()
    world.register()
    world.poll(wait_ms=HOUR)
    at = world.now + 90 * SECOND
    world.submit("a", run_at=at)
    explanation = world.why("a")
    assert [cause.code for cause in explanation.causes] == ["run_at"]
    assert (explanation.estimated_start, explanation.method) == (at, "known times")


def test_a_retry_says_which_attempt_failed() -> None:
    world = World()
    world.register()
    world.submit("a", retry=retries(3, delay_ms=10 * SECOND))
    run(world, "a")
    world.complete("a", "failed")
    assert first(world, "a") == ("retry", "attempt 1 failed; the next is in 10 s")


def test_dependencies_are_named_with_their_state() -> None:
    world = World()
    world.submit_all([job("up"), job("later", run_at=world.now + HOUR)])
    world.submit("a", after=["up", ("later", "finished")])
    (cause, *_) = world.why("a").causes
    assert cause.message == "it waits for job up (queued) and 1 more"
    assert cause.figures["jobs"][1] == {
        "job_id": "later",
        "when": "finished",
        "status": "pending",
    }


def test_why_names_the_queue_limits_that_are_reached() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(max_workers=1, rate_limit=RateLimit(1, 60 * SECOND))
    world.submit_all([job("a"), job("b")])
    run(world, "a")
    world.queue(paused=True)
    world.poll(wait_ms=HOUR)
    causes = world.why("b").causes
    assert [cause.code for cause in causes] == ["queue_paused", "queue_full", "rate_limit"]
    assert causes[1].message == "queue default runs 1 of at most 1 executions"
    assert causes[2].figures["at"] == world.execution("a").claimed_at + 60 * SECOND


def test_a_full_queue_names_its_running_jobs() -> None:
    world = World()
    world.register(cpu=64)
    world.queue("small", max_workers=2)
    world.submit_all([job(f"other{number}") for number in range(30)])
    world.submit_all([job(name, queue="small") for name in ("a", "b", "c")])
    assert len(world.take()) == 32
    (more,) = world.scheduler.remedies(JobId("c"), world.why("c").causes, world.now)
    assert more.figures == {"max_workers": 3, "jobs": ["a", "b"]}
    assert more.message.startswith("if one of the 2 running jobs of queue small ended")


def test_a_queue_that_gets_a_limit_names_jobs_that_ran_before() -> None:
    world = World()
    world.register(cpu=64)
    world.submit_all([job(name, queue="small") for name in ("a", "b", "c")])
    world.take(max_orders=3)
    world.queue("small", max_workers=2)
    world.complete("b")
    world.submit("d", queue="small")
    (more,) = world.scheduler.remedies(JobId("d"), world.why("d").causes[:1], world.now)
    assert more.figures["jobs"] == ["a", "c"]
    world.queue("small", cleared=("max_workers",))
    assert world.take() == ["d"]


def test_a_holder_of_a_key_that_waits_for_a_retry_is_named() -> None:
    world = World()
    world.register()
    world.submit("a", key="k", retry=retries(3))
    world.submit("b", key="k")
    run(world, "a")
    world.complete("a", "failed", exit_code=75)  # at once
    (end,) = world.scheduler.remedies(JobId("b"), world.why("b").causes[:1], world.now)
    assert end.figures == {"jobs": ["a"]}
    world.step(*end.change)
    assert world.take() == ["b"]


def test_why_names_the_holders_of_a_key_and_how_many_wait_before() -> None:
    world = World()
    world.register()
    for name in ("a", "b", "c"):
        world.submit(name, key="customer-42")
    code, message = first(world, "c")
    assert code == "concurrency"
    assert message == ("key 'customer-42' allows 1 at once and 1 hold it; 1 wait before this one")


def test_why_names_free_capacity_without_a_poll_and_the_jobs_before_it() -> None:
    world = World()
    world.register()
    world.submit("a")
    world.submit("b")
    assert world.causes("a") == ["no_poll"]
    assert world.causes("b") == ["no_poll", "order"]


def test_a_running_job_names_its_worker_and_an_ended_one_has_no_cause() -> None:
    world = World()
    world.register()
    world.submit("a")
    run(world, "a")
    assert first(world, "a") == ("running", "it runs on worker w1")
    world.complete("a")
    assert world.scheduler.why(JobId("a"), world.now) is None


def test_a_job_without_a_cause_starts_at_the_next_turn() -> None:
    world = World()
    world.register()
    poll = world.poll(wait_ms=HOUR)
    world.submit("a", run_at=world.now + SECOND)
    assert world.causes("a") == ["run_at"]
    world.now += SECOND
    explanation = world.why("a")
    assert (explanation.causes, explanation.method) == ((), "free to go")
    assert explanation.estimated_start == world.now
    world.advance(0)
    assert world.orders(poll) == ["a"]


def test_every_cause_disappears_as_it_is_lifted_until_the_job_runs() -> None:
    world = World()
    world.queue("q", paused=True)
    world.submit("up")
    world.submit("a", queue="q", after=["up"], cpu=8, run_at=world.now + HOUR)
    assert world.causes("a") == ["run_at", "dependencies", "queue_paused", "no_workers"]
    world.register(cpu=4)
    assert world.causes("a") == ["run_at", "dependencies", "queue_paused", "impossible"]
    world.register("big", cpu=8)
    run(world, "up")
    world.complete("up")
    assert world.causes("a") == ["run_at", "queue_paused", "no_poll"]
    world.queue("q", paused=False)
    assert world.causes("a") == ["run_at", "no_poll"]
    world.advance(HOUR)
    assert world.causes("a") == ["workers_away"]
    assert world.take("big") == ["a"]


def test_a_job_that_no_worker_could_run_is_no_cause_for_others() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    world.queue("shut", paused=True)
    world.submit("impossible", cpu=64, priority=1000)
    world.submit("plain", queue="shut")
    assert world.causes("plain") == ["queue_paused", "no_poll"]


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (500, "0.5 s"),
        (59_999, "59.999 s"),
        (60_000, "1 min"),
        (61_500, "1 min 1 s"),
        (5_400_000, "1 h 30 min"),
        (3_600_999, "1 h"),
        (86_400_000, "1 d"),
        (86_400_000 + 60_000, "1 d"),
        (72 * 365 * 86_400_000 + 7_200_000, "26280 d 2 h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(ms: int, said: str) -> None:
    assert duration_text(ms) == said
