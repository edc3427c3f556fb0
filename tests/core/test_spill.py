"""Long lines: what waits in the store comes back in time, in order, and whatever happens to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import (
    Cancel,
    Delete,
    Execute,
    MemoryWindow,
    Preloaded,
    Purge,
    SetPolicy,
    Timing,
)
from rota.core.errors import Conflict, StalePreload
from rota.core.ids import spill_queue_number
from rota.core.limits import CORE_LIMITS, CoreLimits
from rota.core.model import JobId, JobState, Life, Queue, WorkerId
from rota.core.outcome import CountReceipt, PutJob
from rota.core.policy import DEFAULT, STRICT, OrderKind, Policy
from rota.core.schedule_model import Overlap
from tests.core.asking import job, spec
from tests.core.schedule_builders import MINUTE, Planner
from tests.core.world import World, run

TINY = MemoryWindow(jobs=3, fifo_group=2, refill=2)
WIDE = MemoryWindow(jobs=40, fifo_group=40, refill=60)


def world_with(
    waiting: int, window: MemoryWindow = TINY, limits: CoreLimits = CORE_LIMITS, **asked: object
) -> World:
    """So many jobs of one line: j1, j2, …; the first three are in memory."""
    world = World(timing=Timing(window=window), limits=limits)
    for number in range(1, waiting + 1):
        world.submit(f"j{number}", **asked)
    return world


def in_memory(world: World) -> list[str]:
    return list(world.scheduler._t.jobs)


def drain(world: World) -> list[str]:
    """Everything is run, one job at a time, by one worker."""
    started: list[str] = []
    world.register(cpu=1)
    while taken := world.take(max_orders=1):
        started += taken
        world.complete(taken[0])
    return started


def test_what_memory_has_no_room_for_is_written_and_not_kept() -> None:
    world = world_with(50)
    assert in_memory(world) == ["j1", "j2", "j3"]
    assert all(world.state(f"j{number}") is JobState.QUEUED for number in range(1, 51))
    assert world.scheduler.queues()[0].depth == {JobState.QUEUED: 50}


def test_a_long_line_runs_in_order_of_arrival_with_few_of_it_in_memory() -> None:
    world = world_with(50)
    world.register(cpu=1)
    for number in range(1, 51):
        run(world, f"j{number}")
        world.complete(f"j{number}")
        assert len(in_memory(world)) <= 5
    assert in_memory(world) == []
    assert world.ledger.spill_queues() == {}


@pytest.mark.parametrize("stretch", [1, 17, 20, 60])
def test_a_piece_that_stands_in_line_in_several_stretches_runs_in_order(
    stretch: int,
) -> None:
    world = world_with(120, WIDE, CoreLimits(refill_chunk_jobs=stretch))
    assert drain(world) == [f"j{number}" for number in range(1, 121)]


def test_jobs_that_came_at_other_times_have_other_places_when_they_are_back() -> None:
    world = World(timing=Timing(window=WIDE), policy=DEFAULT)
    for number in range(1, 81):
        world.advance(number % 3 // 2)
        world.submit(f"j{number}", created_at=world.now)
    world.register(cpu=1)
    run(world, "j1")
    order = world.scheduler._t.ready_queue.order
    cells = list(world.scheduler._t.jobs.values())
    assert len(cells) == 80
    assert [cell.sort_key for cell in cells] == [order.sort_key(cell.spec) for cell in cells]


def test_a_job_with_a_time_of_its_own_shares_its_place_with_none_of_its_batch() -> None:
    world = World(timing=Timing(window=WIDE), policy=DEFAULT)
    for number in range(1, 81):
        world.submit(f"j{number}", run_at=None if number % 4 else world.now)
    world.register(cpu=1)
    run(world, "j1")
    order = world.scheduler._t.ready_queue.order
    cells = list(world.scheduler._t.jobs.values())
    assert len(cells) == 80
    assert [cell.sort_key for cell in cells] == [order.sort_key(cell.spec) for cell in cells]


def test_who_comes_late_does_not_go_before_those_on_the_shelf() -> None:
    world = world_with(8)
    world.submit("urgent", priority=1)
    world.submit("expiring", expires_at=world.now + 3_600_000)
    world.submit("needed")
    world.submit("child", after=["needed"])
    expected = ["urgent", *(f"j{number}" for number in range(1, 9)), "expiring", "needed", "child"]
    assert drain(world) == expected


@pytest.mark.parametrize(
    "asked",
    [
        {"key": "k"},
        {"expires_at": 9_000_000_000_000},
        {"run_at": 9_000_000_000_000},
        {"after": ["j1"]},
    ],
)
def test_a_job_to_which_something_else_may_happen_stays_in_memory(asked: dict[str, object]) -> None:
    world = world_with(9)
    world.submit("special", **asked)
    assert "special" in in_memory(world)


def test_a_job_that_others_of_its_batch_wait_for_stays_in_memory() -> None:
    world = world_with(9)
    world.submit_all([job("plain"), job("first"), job("second", after=["first"])])
    assert "first" in in_memory(world)
    assert "plain" not in in_memory(world)


def test_while_the_store_is_asked_nobody_overtakes_what_is_on_the_shelf() -> None:
    world = world_with(6)
    world.submit("other", queue="other")
    world.submit("urgent", queue="other", priority=1)
    world.register(cpu=100)
    poll = world.asking(max_orders=50)
    outcome = world.bare_turn([poll])
    assert world.orders(poll.poll_id) == ["urgent", "j1", "j2", "j3"], "and `other` waits"
    again = world.asking(max_orders=50)
    assert not world.bare_turn([again]).answers
    refills = [world.ledger.refill(one) for one in outcome.refills]
    world.turn(refills)
    world.take(max_orders=50)
    ran = [world.execution(name).job_id for name in ("j4", "j5", "j6", "other")]
    assert ran == ["j4", "j5", "j6", "other"]


def test_a_question_asked_in_good_time_is_asked_again_when_a_worker_waits() -> None:
    world = world_with(9)
    world.register(cpu=100)
    (early,) = world.bare_turn([world.asking(max_orders=2)]).refills
    assert not early.urgent
    (urgent,) = world.bare_turn([world.asking(max_orders=2)]).refills
    assert urgent.urgent
    assert not world.bare_turn([world.asking(max_orders=2)]).refills, "once is enough"
    world.turn([world.ledger.refill(early)])
    assert in_memory(world) == ["j1", "j2", "j3"], "nobody waits for that any more"
    world.turn([world.ledger.refill(urgent)])
    assert world.state("j5") is JobState.RUNNING


def test_an_answer_to_an_earlier_question_changes_nothing() -> None:
    world = world_with(9)
    world.register(cpu=100)
    poll = world.asking(max_orders=2)
    (wanted,) = world.bare_turn([poll]).refills
    answer = world.ledger.refill(wanted)
    world.turn([answer])
    known = in_memory(world)
    world.turn([answer])
    assert in_memory(world) == known


def test_an_answer_for_a_line_that_was_emptied_and_has_grown_again_changes_nothing() -> None:
    world = world_with(5)
    world.register(cpu=100)
    (wanted,) = world.bare_turn([world.asking(max_orders=2)]).refills
    late = world.ledger.refill(wanted)
    assert [record.id for record in late.jobs] == ["j4", "j5"]
    for name in ("j3", "j4", "j5"):
        world.bare_turn([Cancel(job_id=JobId(name), preloaded=world.recall())])
    for number in range(6):
        world.submit(f"k{number}")
    world.turn([late])
    assert [world.state(name) for name in ("j4", "j5")] == [JobState.CANCELLED] * 2
    assert not {"j4", "j5"} & {*in_memory(world)}


def test_what_ended_while_the_store_was_read_does_not_come_back() -> None:
    world = world_with(9)
    world.register(cpu=100)
    (wanted,) = world.bare_turn([world.asking(max_orders=2)]).refills
    answer = world.ledger.refill(wanted)
    assert [record.id for record in answer.jobs] == ["j4", "j5"]
    world.bare_turn([Cancel(job_id=JobId("j4"), preloaded=world.recall())])
    assert world.state("j4") is JobState.CANCELLED
    world.turn([answer])
    assert "j4" not in in_memory(world)
    assert "j5" in in_memory(world)


# What people do to a job that is on the shelf


def test_a_job_on_the_shelf_is_cancelled() -> None:
    world = world_with(9)
    world.cancel("j7")
    assert world.state("j7") is JobState.CANCELLED
    assert drain(world) == ["j1", "j2", "j3", "j4", "j5", "j6", "j8", "j9"]


def test_a_job_on_the_shelf_is_deleted_by_force() -> None:
    world = world_with(9)
    world.step(Delete(job_id=JobId("j7"), force=True, preloaded=world.recall()))
    assert world.state("j7") is None
    assert "j7" not in drain(world)


def test_a_job_on_the_shelf_can_be_made_urgent() -> None:
    world = world_with(9)
    world.update("j7", priority=5)
    assert world.life("j7").line == 0
    assert drain(world)[0] == "j7"


def test_a_job_on_the_shelf_can_be_run_on_a_named_worker() -> None:
    world = world_with(9)
    world.register(cpu=1)
    world.step(Execute(job_id=JobId("j7"), worker_id=WorkerId("w1"), preloaded=world.recall()))
    assert world.state("j7") is JobState.RUNNING


def test_a_job_on_the_shelf_can_be_waited_for_through_a_restart() -> None:
    world = world_with(9)
    world.submit("child", after=["j9"])
    assert world.life("j9").line == 0, "a load has to find it"
    world.restart()
    assert world.state("child") is JobState.PENDING
    assert drain(world)[-2:] == ["j9", "child"]


def test_a_job_on_the_shelf_that_is_left_as_it_was_does_not_stay_in_memory() -> None:
    world = world_with(30)
    for number in range(4, 31):
        with pytest.raises(Conflict):
            world.step(Delete(job_id=JobId(f"j{number}"), preloaded=world.recall()))
    assert in_memory(world) == ["j1", "j2", "j3"]
    assert drain(world) == [f"j{number}" for number in range(1, 31)]


def test_a_visitor_that_is_next_is_not_put_back_behind_the_edge() -> None:
    world = world_with(9)
    world.register(cpu=100)
    (wanted,) = world.bare_turn([world.asking(max_orders=2)]).refills
    answer = world.ledger.refill(wanted)
    refused = Delete(job_id=JobId("j4"), preloaded=world.recall())
    world.turn([refused, answer])
    assert "j4" in in_memory(world)
    while world.take(max_orders=50):
        pass
    assert world.ledger.spill_queues() == {}


def test_a_job_that_has_just_been_cancelled_is_not_brought_back_by_an_old_record() -> None:
    world = world_with(9)
    before = world.recall()
    world.cancel("j7")
    with pytest.raises(StalePreload):
        world.step(Cancel(job_id=JobId("j7"), preloaded=before))


def test_a_record_from_before_a_reload_is_not_believed() -> None:
    world = world_with(9)
    before = world.recall()
    world.now += 5
    world.restart()
    with pytest.raises(StalePreload):
        world.step(Cancel(job_id=JobId("j7"), preloaded=before))


def test_a_job_on_the_shelf_says_why_it_waits() -> None:
    world = world_with(9)
    assert world.causes("j7") == ["no_workers"]
    world.register(cpu=1)
    world.take(max_orders=1)
    causes = {cause.code: cause for cause in world.why("j7").causes}
    assert causes["resources_busy"]
    assert causes["order"].figures == {"alike": 7, "priority": 0}


def test_a_purge_ends_what_it_is_brought_and_then_what_is_in_memory() -> None:
    world = world_with(9)
    world.submit("elsewhere", queue="other")
    away = [world.record(f"j{number}") for number in range(4, 10)]
    world.now += 1
    piece = Preloaded(at=world.now, jobs=tuple(away))
    assert world.step(Purge(name="default", preloaded=piece)) == CountReceipt(6)
    assert world.step(Purge(name="default", before=6)) == CountReceipt(9)
    assert in_memory(world) == ["elsewhere"]
    assert world.ledger.spill_queues() == {}


def test_a_purge_leaves_what_has_moved_on_meanwhile() -> None:
    world = world_with(9)
    world.now += 1
    piece = Preloaded(at=world.now, jobs=tuple(world.record(name) for name in ("j8", "j9")))
    world.cancel("j9")
    assert world.step(Purge(name="default", preloaded=piece)) == CountReceipt(1)


# Restarts


def test_after_a_restart_the_first_of_each_line_are_in_memory_and_the_rest_is_counted() -> None:
    world = world_with(20)
    for number in range(20):
        world.submit(f"k{number}", queue="other")
    world.restart()
    assert len(in_memory(world)) < 15
    depths = {glance.queue.name: glance.depth for glance in world.scheduler.queues()}
    assert [depth[JobState.QUEUED] for depth in depths.values()] == [20, 20]
    expected = [*(f"j{number}" for number in range(1, 21)), *(f"k{n}" for n in range(20))]
    assert drain(world) == expected


def test_a_line_has_the_same_number_for_ever() -> None:
    needs = spec().terms.needs
    alike = ("default", needs, 0, "acme", -1)
    assert spill_queue_number(alike) == 7105062248357056290
    others = [
        ("other", needs, 0, "acme", -1),
        ("default", needs, 1, "acme", -1),
        ("default", needs, 0, "zeta", -1),
        ("default", needs, 0, "acme", 960),
    ]
    assert len({spill_queue_number(alike), *(spill_queue_number(other) for other in others)}) == 5


def test_a_line_that_was_served_takes_new_jobs_into_memory_again() -> None:
    world = world_with(9)
    drain(world)
    world.submit("fresh")
    assert in_memory(world) == ["fresh"]


@pytest.mark.parametrize("policy", [STRICT, DEFAULT])
def test_a_shelf_of_an_earlier_program_is_served_out(policy: Policy) -> None:
    """Its lines were not of one tenant only, and had other numbers."""
    world = World(timing=Timing(window=TINY), policy=policy)
    for number in range(1, 21):
        made = replace(spec(tenant="ab"[number % 2]), arrival_number=number)
        life = Life(JobState.QUEUED, reason="ready", ready_at=world.now, line=77)
        world.ledger.append([PutJob(JobId(f"j{number}"), made, life)])
    world.ledger.queues["default"] = Queue("default")
    world.restart()
    world.submit("new", tenant="a")
    world.restart()
    assert sorted(drain(world)) == sorted(["new", *(f"j{n}" for n in range(1, 21))])


def test_runs_of_a_schedule_stay_in_memory_so_that_overlap_is_seen_after_a_restart() -> None:
    world = Planner(timing=Timing(window=TINY))
    for number in range(1, 9):
        world.submit(f"j{number}")
    assert len(in_memory(world)) == 3
    schedule_id = world.schedule(overlap=Overlap.SKIP)
    world.sleep(MINUTE)
    (run_id,) = (one.job_id for one in world.ledger_of(schedule_id))
    assert run_id in in_memory(world)
    world.restart()
    world.sleep(MINUTE)
    assert [one.decision.value for one in world.ledger_of(schedule_id)] == ["fired", "skipped"]


def test_a_policy_is_changed_while_jobs_are_on_the_shelf() -> None:
    world = World(timing=Timing(window=TINY), policy=STRICT)
    for number in range(1, 31):
        world.submit(f"j{number}", tenant="ab"[number % 2], priority=number % 3)
    for policy in (DEFAULT, replace(DEFAULT, order=OrderKind.FIFO), STRICT, DEFAULT):
        world.step(SetPolicy(policy=policy))
        world.restart()
    assert sorted(drain(world)) == sorted(f"j{n}" for n in range(1, 31))
