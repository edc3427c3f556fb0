"""Random actions of people, clocks and crashes on a schedule: no instant is decided twice."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import Conflict, IllegalTransition, StalePreload
from rota.core.model import ScheduleId
from rota.core.schedule_model import CatchUp, Overlap
from tests.core.schedule_builders import MINUTE, Planner
from tests.example_counts import examples

CRONS = ("* * * * *", "*/3 * * * *", "30 */2 * * * *")

steps = st.one_of(
    st.tuples(st.just("advance"), st.integers(1, 5 * MINUTE)),
    st.tuples(st.just("sleep"), st.integers(1, 10 * MINUTE)),
    st.tuples(st.just("jump"), st.integers(-5 * MINUTE, 5 * MINUTE)),
    st.tuples(st.just("crash"), st.integers(0, 3 * MINUTE)),
    st.tuples(st.just("change"), st.sampled_from(CRONS)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("trigger"), st.none()),
    st.tuples(st.just("backfill"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("recreate"), st.sampled_from(CRONS)),
)


class ScheduleActions:
    """Actions on one schedule after the other."""

    def __init__(self, overlap: Overlap, catch_up: CatchUp) -> None:
        self.world = Planner()
        self.rules: dict[str, Any] = {"overlap": overlap, "catch_up": catch_up}
        self.gone: dict[ScheduleId, int] = {}
        self.schedule = self.world.schedule(cron=CRONS[0], **self.rules)

    def do(self, verb: str, given: Any) -> None:
        getattr(self, f"_{verb}")(given)
        for schedule_id, count in self.gone.items():
            assert len(self.world.ledger_of(schedule_id)) == count, "it fired after its removal"

    def _advance(self, ms: int) -> None:
        self.world.advance(ms)

    def _sleep(self, ms: int) -> None:
        self.world.sleep(ms)

    def _jump(self, by: int) -> None:
        self.world.jump(by)

    def _crash(self, ms: int) -> None:
        """Decides a turn and loses it before it is written."""
        self.world.now += ms
        self.world.scheduler.turn([], self.world.now)
        self.world.restart()

    def _change(self, cron: str) -> None:
        self.world.change(self.schedule, cron=cron, **self.rules)

    def _pause(self, paused: bool) -> None:
        self.world.pause(self.schedule, paused=paused)

    def _trigger(self, _: None) -> None:
        may_refuse = self.rules["overlap"] is Overlap.SKIP
        with suppress(Conflict) if may_refuse else nullcontext():
            self.world.trigger(self.schedule)

    def _backfill(self, count: int) -> None:
        skipped = [one for one in self.world.ledger_of(self.schedule) if one.job_id is None]
        some = skipped[:count]
        ranges = tuple((one.nominal, one.until) for one in some if one.until is not None)
        self.world.backfill(self.schedule, *(one.nominal for one in some), ranges=ranges)

    def _end(self, count: int) -> None:
        for job_id in list(self.world.scheduler._t.jobs)[:count]:
            with suppress(
                IllegalTransition, StalePreload
            ):  # a run that fires in the same turn may have replaced it
                self.world.cancel(job_id)

    def _recreate(self, cron: str) -> None:
        self.world.delete(self.schedule)
        self.gone[self.schedule] = len(self.world.ledger_of(self.schedule))
        self.schedule = self.world.schedule(cron=cron, **self.rules)


@given(st.sampled_from(Overlap), st.sampled_from(CatchUp), st.lists(steps, min_size=1, max_size=14))
@settings(max_examples=examples(80, 1_000), deadline=None)
def test_no_sequence_of_actions_decides_an_instant_twice(
    overlap: Overlap, catch_up: CatchUp, happens: list[tuple[str, Any]]
) -> None:
    # The world itself checks after every step that no instant is decided twice, that no watermark
    # goes back, and that memory equals what was written.
    actions = ScheduleActions(overlap, catch_up)
    for verb, given_ in happens:
        actions.do(verb, given_)
    actions.world.catch_up()
