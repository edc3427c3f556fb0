"""Triggers that react: to events from outside, to the ends of jobs, alone and together."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import Preloaded, ReceiveEvents
from rota.core.errors import Conflict, Invalid, NotFound, StalePreload
from rota.core.limits import BUFFERED_PER_JOB_MAX, CHAIN_DEPTH_MAX, PRELOAD_WINDOW_MS
from rota.core.model import JobState, RateLimit
from rota.core.trigger_model import EventDecision
from tests.core.asking import SECOND
from tests.core.trigger_builders import Stirred, batch, debounce, event, rule, template
from tests.core.world import run


@pytest.fixture
def world() -> Stirred:
    return Stirred()


def test_an_event_makes_its_job_in_the_turn_that_takes_it(world: Stirred) -> None:
    trigger = world.trigger()
    (told,) = world.send(event(data={"name": "a.csv"}))
    (arrival,) = told.decisions
    assert (arrival.trigger_id, arrival.decision) == (trigger, EventDecision.FIRED)
    job = world.record(arrival.job_id or "")
    assert job.life.state is JobState.QUEUED
    assert job.spec.trigger_origin is not None
    assert (job.spec.trigger_origin.trigger_id, job.spec.trigger_origin.event_id) == (trigger, "e1")


def test_the_whole_event_is_the_payload_unless_the_job_says_otherwise(world: Stirred) -> None:
    trigger = world.trigger()
    world.send(event(data={"name": "a.csv"}, subject="a", extensions=(("region", "eu"),)))
    assert world.payload(world.jobs_of(trigger)[0]) == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/bucket",
        "type": "object.uploaded",
        "subject": "a",
        "region": "eu",
        "data": {"name": "a.csv"},
    }


def test_slots_keep_their_kind_in_the_payload_and_are_text_elsewhere(world: Stirred) -> None:
    job = template(
        task={"kind": "command", "argv": ["scan", "{{event.data.path}}", "{{ event.data.n }}"]},
        payload={"n": "{{event.data.n}}", "note": "file {{event.id}}", "gone": "{{event.data.x}}"},
    )
    trigger = world.trigger(job=job)
    world.send(event(data={"path": 'a "b".csv', "n": 3}))
    (made,) = world.jobs_of(trigger)
    assert world.task(made)["argv"] == ["scan", 'a "b".csv', "3"]
    assert world.payload(made) == {"n": 3, "note": "file e1", "gone": None}


def test_a_function_gets_the_event_as_its_argument(world: Stirred) -> None:
    trigger = world.trigger(job=replace(template(), task=b"null"))
    world.send(event())
    assert world.payload(world.jobs_of(trigger)[0])["args"][0]["id"] == "e1"


def test_the_same_event_again_has_no_effect_and_the_same_answer(world: Stirred) -> None:
    trigger = world.trigger()
    (first,) = world.send(event())
    (again,) = world.send(event(data={"other": True}))
    assert again.decisions == first.decisions
    assert (again.repeats, len(world.jobs_of(trigger))) == (1, 1)


def test_the_same_event_is_known_after_a_restart(world: Stirred) -> None:
    trigger = world.trigger()
    world.send(event())
    world.advance(3 * PRELOAD_WINDOW_MS)
    world.restart()
    world.send(event())
    assert world.words(trigger) == ["fired"]


def test_the_same_event_twice_in_one_batch_counts_once(world: Stirred) -> None:
    trigger = world.trigger()
    told = world.send(event(), event(), event("e2"))
    assert [one.repeats for one in told] == [0, 1, 0]
    assert len(world.jobs_of(trigger)) == 2


def test_the_same_id_of_another_source_is_another_event(world: Stirred) -> None:
    trigger = world.trigger()
    world.send(event(), event(source="/other"))
    assert len(world.jobs_of(trigger)) == 2


def test_an_event_looked_up_too_long_ago_is_looked_up_again(world: Stirred) -> None:
    old = Preloaded(at=world.now)
    world.advance(PRELOAD_WINDOW_MS + 1)
    with pytest.raises(StalePreload):
        world.step(ReceiveEvents(events=(event(),), preloaded=old))


@pytest.mark.parametrize(
    ("pattern", "kind", "hears"),
    [
        ("object.uploaded", "object.uploaded", True),
        ("object.uploaded", "object.uploaded.twice", False),
        ("object.*", "object.uploaded", True),
        ("object.*", "object.a.b", True),
        ("object.*", "object", False),
        ("object.*", "objects.uploaded", False),
        ("*", "anything", True),
    ],
)
def test_a_pattern_means_a_type_or_all_that_begin_so(
    world: Stirred, pattern: str, kind: str, hears: bool
) -> None:
    trigger = world.trigger(kind=pattern)
    world.send(event(kind=kind))
    assert world.words(trigger) == (["fired"] if hears else [])


def test_what_the_filter_refuses_is_on_record(world: Stirred) -> None:
    trigger = world.trigger(where="data.size > 10")
    world.send(event(data={"size": 3}), event("e2", data={"size": 30}))
    assert sorted(world.words(trigger)) == ["filtered", "fired"]


def test_a_paused_trigger_records_and_makes_nothing(world: Stirred) -> None:
    trigger = world.trigger(paused=True)
    world.send(event())
    world.pause(trigger, paused=False)
    world.send(event("e2"))
    assert world.words(trigger) == ["paused", "fired"]


def test_what_comes_too_fast_is_left_out(world: Stirred) -> None:
    trigger = world.trigger(rate=RateLimit(2, 10 * SECOND))
    for number in range(3):
        world.send(event(f"e{number}"))
    assert world.words(trigger) == ["fired", "fired", "limited"]
    world.advance(5 * SECOND)
    world.send(event("later"))
    assert world.words(trigger)[-1] == "fired"


def test_a_job_that_ends_may_start_another(world: Stirred) -> None:
    trigger = world.trigger(kind="rota.job.failed")
    world.register()
    world.submit("j1")
    run(world, "j1")
    world.complete("j1", "failed", error=b'{"message":"no"}')
    (made,) = world.jobs_of(trigger)
    about = world.payload(made)["data"]
    assert (about["job_id"], about["status"], about["error"]) == ("j1", "failed", {"message": "no"})
    assert world.record(made).spec.trigger_origin.depth == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["cancelled", "expired", "skipped"])
def test_every_way_to_end_is_an_event(world: Stirred, how: str) -> None:
    trigger = world.trigger(kind="rota.job.*", where=f"data.status == '{how}'")
    if how == "expired":
        world.submit("j1", expires_at=world.now + 10, run_at=world.now + 100)
        world.advance(20)
    else:
        world.submit("up", run_at=world.now + 1000)
        world.submit("j1", after=["up"])
        world.cancel("up")
    assert len(world.jobs_of(trigger)) == 1


def test_nothing_is_made_of_an_end_that_nobody_asked_about(world: Stirred) -> None:
    world.trigger(kind="rota.job.failed")
    world.submit("j1")
    world.cancel("j1")
    assert not world.ledger.accepted


def test_a_trigger_for_everything_is_not_set_off_by_the_jobs_it_makes(world: Stirred) -> None:
    trigger = world.trigger(kind="*")
    world.register()
    world.send(event())
    (made,) = world.jobs_of(trigger)
    run(world, made)
    world.complete(made)
    assert world.words(trigger) == ["fired"]


def test_a_loop_of_jobs_that_start_each_other_is_ended(world: Stirred) -> None:
    trigger = world.trigger(kind="rota.job.succeeded")
    world.register()
    world.submit("j1")
    for _ in range(CHAIN_DEPTH_MAX + 1):
        (taken,) = world.take(max_orders=1)
        world.complete(taken)
        world.advance(1)
    assert world.words(trigger) == ["fired"] * CHAIN_DEPTH_MAX + ["too_deep"]
    assert world.take() == []


def test_a_loop_within_one_turn_is_ended_too(world: Stirred) -> None:
    expired = template(expires_at=1)
    trigger = world.trigger(kind="rota.job.expired", job=expired)
    world.submit("j1", expires_at=1)
    assert sorted(world.words(trigger)) == ["fired"] * CHAIN_DEPTH_MAX + ["too_deep"]


def test_a_job_that_cannot_be_made_is_on_record(world: Stirred) -> None:
    trigger = world.trigger(job=template(payload={"twice": ["{{event}}", "{{event}}"]}))
    world.send(event(data="x" * 600_000))
    (arrival,) = world.ledger_of(trigger)
    assert (arrival.decision, arrival.job_id) == (EventDecision.FAILED, None)
    assert "payload is larger" in arrival.detail


def test_two_triggers_may_not_have_one_name(world: Stirred) -> None:
    world.trigger()
    with pytest.raises(Conflict, match="already"):
        world.trigger()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job": template(payload={"a": "{{scheduled_at}}"})}, "nothing would fill"),
        ({"job": template(payload={"a": "{{event.data|upper}}"})}, "cannot read"),
        ({"job": template(after=["j1"])}, "depends on the event alone"),
        ({"where": "open('x')"}, "no function 'open'"),
        ({"buffering": batch(BUFFERED_PER_JOB_MAX + 1)}, "at most"),
        ({"buffering": debounce(key="1 + 1")}, "key"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    world: Stirred, given: dict[str, object], said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        world.trigger(**given)
    assert said in f"{refused.value.field} {refused.value.detail}"


def test_a_trigger_that_is_not_there_cannot_be_deleted(world: Stirred) -> None:
    trigger = world.trigger()
    world.delete(trigger)
    with pytest.raises(NotFound):
        world.delete(trigger)


def test_a_program_has_just_the_triggers_it_deployed_last(world: Stirred) -> None:
    by_hand = world.trigger("mine")
    world.deploy("shop", rule("a"), rule("b"))
    done = world.deploy("shop", rule("b"), rule("c"), rule("b2", where="data.size > 1"))
    assert (done.created, done.unchanged, done.retired) == (("c", "b2"), ("b",), ("a",))
    changed = world.deploy("shop", rule("b", where="data.size > 1"))
    assert changed.changed == ("b",)
    assert by_hand in world.ledger.triggers
    with pytest.raises(Conflict, match="a person"):
        world.deploy("shop", rule("mine"))


def test_trying_an_event_changes_nothing(world: Stirred) -> None:
    trigger = world.trigger(where="data.size > 10")
    (trial,) = world.scheduler.try_event(event(data={"size": 30}), None, world.now)
    assert trial.decision is EventDecision.FIRED
    assert trial.job is not None
    (other,) = world.scheduler.try_event(event(data={"size": 3}), trigger, world.now)
    assert (other.decision, other.job) == (EventDecision.FILTERED, None)
    assert not world.ledger.jobs
    assert not world.ledger.decisions
