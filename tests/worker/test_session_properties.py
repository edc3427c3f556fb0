"""Properties of the session, whatever servers, networks and jobs do."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rota.worker.reports import report_noop
from rota.worker.session import Abandon, Action, LeaseCall, Session, Start
from tests.example_counts import examples
from tests.worker.orders import TTL, answer, order, registration

NAMES = st.sampled_from([f"e{number}" for number in range(12)])
BEHIND = {"e1": "e0", "e2": "e1", "e3": "e2", "e5": "e4", "e7": "e6"}
"""Those that are only ever prefetched; the one that they are behind may come later, or never."""


MOMENT_S = 0.05
"""So much later than it could a worker may ask or report."""


class AnyConversation(RuleBasedStateMachine):
    """A server that grants, repeats, cancels and takes back; answers that come late or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.session = Session(concurrency=3, spare=4)
        self.session.registered(registration())
        self.open: list[LeaseCall] = []
        self.alone_at = 0.0
        """When the last call was made that had no other beside it."""
        self.started: list[str] = []
        self.alive: dict[str, float] = {}
        """Running, with the latest moment until which the server may believe in it."""
        self.granted: dict[str, float] = {}
        self.dying: list[str] = []
        self.unheard: set[str] = set()
        """Ended and reported, but no call that carried it was answered."""

    def obey(self, instructions: list[Action]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                name = instruction.order.execution_id
                assert name not in self.started, "started twice"
                before = instruction.order.behind
                assert before not in self.alive, "began beside the one that it is behind"
                assert before not in self.dying, "began before the other was gone"
                self.started.append(name)
                self.alive[name] = self.granted[name]
            elif isinstance(instruction, Abandon):
                self.dying.append(instruction.execution_id)
                del self.alive[instruction.execution_id]

    @rule(seconds=st.sampled_from([0.5, TTL / 3, TTL / 2, TTL]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.obey(self.session.expire(self.now))

    @precondition(lambda self: self.session.wants_call(self.now))
    @rule()
    def call(self) -> None:
        if not self.open:
            self.alone_at = self.now
        self.open.append(self.session.call(self.now))

    @precondition(lambda self: self.open)
    @rule(
        data=st.data(),
        granted=st.lists(NAMES, max_size=3),
        cancel=st.lists(NAMES, max_size=2),
        lost=st.lists(NAMES, max_size=1),
    )
    def answer(
        self, data: st.DataObject, granted: list[str], cancel: list[str], lost: list[str]
    ) -> None:
        call = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for name in call.named:
            until = max(self.granted[name], call.sent_at + TTL)
            self.granted[name] = until
            if name in self.alive:
                self.alive[name] = until
        for name in granted:
            self.granted.setdefault(name, self.now + TTL)
        self.unheard -= {*call.carried, *lost}
        held_for = self.now - call.sent_at
        orders = [order(name, behind=BEHIND.get(name)) for name in granted]
        reply = answer(*orders, held_for=held_for, cancel=cancel, lost=lost)
        self.obey(self.session.answered(call, reply, self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answer_is_lost(self, data: st.DataObject) -> None:
        self.session.failed(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    @precondition(lambda self: self.alive or self.dying)
    @rule(data=st.data())
    def job_ends(self, data: st.DataObject) -> None:
        running = [*self.alive, *self.dying]
        name = data.draw(st.sampled_from(running))
        if name in self.alive:
            del self.alive[name]
            self.unheard.add(name)
        else:
            self.dying.remove(name)
        self.obey(self.session.ended([report_noop(name, 7)], self.now))

    @precondition(lambda self: len(self.started) > 4)
    @rule()
    def server_forgets_the_worker(self) -> None:
        self.open.clear()
        self.obey(self.session.registration_lost("forgotten"))

    @invariant()
    def nothing_runs_past_its_lease(self) -> None:
        assert all(until > self.now for until in self.alive.values())

    @invariant()
    def never_more_than_the_limit_runs(self) -> None:
        assert len(self.alive) + len(self.dying) <= 3

    @invariant()
    def a_report_is_owed_until_it_is_heard(self) -> None:
        assert self.unheard <= set(self.session._pending)

    @invariant()
    def an_idle_line_is_idle_for_a_moment_only(self) -> None:
        assert self.open or self.session.wants_call(self.now + MOMENT_S)

    @invariant()
    def a_report_waits_for_no_answer_of_an_earlier_call(self) -> None:
        """But for the last two thirds of a lease, when the next full call is due instead."""
        soon = self.now + MOMENT_S
        if len(self.open) == 1 and self.unheard - {*self.open[0].carried}:
            assert self.session.wants_call(soon) or soon >= self.alone_at + TTL / 3

    def teardown(self) -> None:
        for call in self.open:
            self.session.failed(call)
        carried: set[str] = set()
        while self.session.pending_reports:
            call = self.session.call(self.now)
            carried.update(call.carried)
            self.session.answered(call, answer(), self.now)
        assert self.unheard <= carried


TestAnyConversation = AnyConversation.TestCase
TestAnyConversation.settings = settings(
    max_examples=examples(80, 1_000), stateful_step_count=40, deadline=None
)
