"""Main loop of a worker against the server: registers, polls, reports, sends heartbeats, drains.

`PollLoop` makes the calls and survives servers that are away. `RunLoop` registers again when a
server has forgotten this worker, and watches the leases. The session decides what a call says and
what its answer means; the executor carries it out.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from structlog.typing import FilteringBoundLogger

from rota.sdk.backoff import delay_s
from rota.wire.formats import encode
from rota.wire.workers import HeartbeatAnswer, LeaseAnswer, RegisterAnswer, RegisterSpec
from rota.worker.clock import MonotonicClock
from rota.worker.executor import Executor
from rota.worker.server_client import (
    JSON_HEADERS,
    TOO_MANY,
    AwayError,
    RefusedError,
    ServerClient,
    ServerRequest,
    post,
)
from rota.worker.session import LeaseCall, Session
from rota.worker.usage import Usage

GOODBYE_S = 2.0
"""For calls that nothing depends on."""
RETRY_CAP_S = 5.0
"""Longest pause between two attempts, however long the server is away: the worker is back soon
after it."""
FAILOVER_S = 3.0
"""For this long after the first failure another server may become leader at any moment: pauses stay
short."""
FAILOVER_CAP_S = 0.4
"""Longest pause between two rounds of all servers in that time; later pauses grow to
RETRY_CAP_S."""
SILENCE_S = 3.0
"""A server that stays silent this much longer than its wait is passed over for another. With a
lease of 15 s two servers in a row may be silent and a third still renews it."""
SILENCE_S_MIN = 1.0
"""Lower bound of the same under short leases: a busy machine needs this much."""
NO_LEADER_PAUSE_S = 0.2
"""Pause after a server said that there is no leader: the election takes a while."""
EARLY_ANSWER_S = 0.05
"""An answer faster than this means that the server did not wait for work."""
EARLY_PAUSE_S = 0.2
"""Pause after an early answer without news; otherwise both sides would only ask and answer."""

_lease_answer = msgspec.json.Decoder(LeaseAnswer)
_heartbeat_answer = msgspec.json.Decoder(HeartbeatAnswer)
_register_answer = msgspec.json.Decoder(RegisterAnswer)


class FatalError(Exception):
    """Raised when the worker cannot go on; the text says why and what to do."""


class PollLoop:
    """Calls of one worker to the servers: registration, leases, heartbeats, drain."""

    def __init__(
        self,
        session: Session,
        client: ServerClient,
        clock: MonotonicClock,
        log: FilteringBoundLogger,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._session = session
        self._client = client
        self._clock = clock
        self._log = log
        self._silence_limit_s = silence_s
        self._last_server = ""
        self._woken = asyncio.Event()
        self._rest_until: float | None = None
        """End of a pause between calls; what happens meanwhile is sent when it ends."""
        self._is_registered = asyncio.Event()
        self._open: dict[asyncio.Task[None], LeaseCall] = {}
        self._seed = secrets.token_hex(8)
        self._failures = 0
        self._not_before = 0.0
        self._unreachable_since: float | None = None
        self._heartbeat_s = 5.0
        self._last_sent = 0.0
        self._usage = Usage()
        self._newest_call = 0
        self.worker_id = ""

    def wake(self) -> None:
        """Signals a change that may be worth a call."""
        if self._rest_until is None or self._session.rests_until() != self._rest_until:
            self._woken.set()

    async def register(self, spec: RegisterSpec) -> bool:
        """Registers, however long it takes; False if the worker was drained before."""
        # A retry with the same key gets the same identity: a lost answer leaves no unused worker.
        headers = {**JSON_HEADERS, "Idempotency-Key": secrets.token_hex(16)}
        request = ServerRequest("POST", "/workers/register", encode(spec), headers=headers)
        while not self._session.draining:
            try:
                answer = _register_answer.decode(await self._client.ask(request))
            except AwayError as away:
                self._server_failed(away)
                await self._pause(self._not_before - self._clock.now())
            except RefusedError as refusal:
                raise self._fatal(refusal) from None
            except msgspec.MsgspecError:
                detail = f"{self._client.server} does not answer like a Rota server: check its URL"
                raise FatalError(detail) from None
            else:
                self.worker_id = self._seed = answer.worker_id
                self._session.registered(answer)
                self._heartbeat_s = answer.heartbeat_interval
                self._is_registered.set()
                self._log.info("registered", worker_id=answer.worker_id, server=self._client.server)
                self._last_server = self._client.server
                self._server_answered()
                return True
        return False

    async def poll_until_drained(self, executor: Executor) -> bool:
        """Polls until drained; False if the server no longer knows this worker."""
        self._not_before = self._clock.now()
        try:
            while not self._session.drained and not self._gave_up():
                self._send_call(executor)
                await self._wait_for_event()
                for task in [task for task in self._open if task.done()]:
                    if not self._settle(self._open.pop(task), task):
                        return False
            return True
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            self._open.clear()

    async def send_heartbeats(self, executor: Executor) -> None:
        """Sends heartbeats while a poll outlasts the interval, until it is cancelled."""
        await self._is_registered.wait()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if self._clock.now() - self._last_sent < self._heartbeat_s or not self._session.held:
                continue
            await self._send_heartbeat(executor)

    async def _send_heartbeat(self, executor: Executor) -> None:
        """Asks one server after the other until one answers."""
        for _ in range(self._client.server_count):
            heartbeat = self._session.heartbeat(self._clock.now())
            request = post(self._path("heartbeat"), heartbeat.spec, self._silence_s())
            try:
                answer = _heartbeat_answer.decode(await self._client.ask(request))
            except AwayError:
                continue
            except (RefusedError, msgspec.MsgspecError):
                return  # the poll gets the same answer and handles it
            executor.carry_out(self._session.heartbeat_answered(heartbeat, answer))
            executor.renew(self._clock.now())
            return

    async def drain(self) -> None:
        """Tells the server that this worker drains. Only the dashboard needs it: no call asks for
        work any more."""
        if self.worker_id:
            await self._ask_each_once(
                ServerRequest("POST", self._path("drain"), timeout_s=GOODBYE_S)
            )

    async def leave(self) -> None:
        """Deregisters; a server that does not hear it will notice the silence."""
        await self._ask_each_once(
            ServerRequest("DELETE", f"/workers/{self.worker_id}", timeout_s=GOODBYE_S)
        )

    async def _ask_each_once(self, request: ServerRequest) -> None:
        """Asks each server at most once, until one answers: nothing depends on it."""
        for _ in range(self._client.server_count):
            try:
                await self._client.ask(request)
            except AwayError:
                continue
            except RefusedError:
                return
            return

    def _silence_s(self) -> float:
        return min(self._silence_limit_s, max(SILENCE_S_MIN, self._session.lease_ttl / 5))

    def _path(self, verb: str) -> str:
        return f"/workers/{self.worker_id}/{verb}"

    def _send_call(self, executor: Executor) -> None:
        now = self._clock.now()
        if now < self._not_before or not self._session.wants_call(now):
            return
        call = self._session.call(now)
        call.spec.usage = {**self._usage.news(now)}
        self._last_sent, self._newest_call = now, call.number
        self._open[asyncio.create_task(self._exchange(call, executor))] = call

    async def _exchange(self, call: LeaseCall, executor: Executor) -> None:
        """Makes one call and carries out its answer in the same task, without a hand-over."""
        timeout_s = call.spec.wait.seconds + self._silence_s()
        try:
            body = await self._client.ask(post(self._path("lease"), call.spec, timeout_s))
            self._take_answer(call, self._lease_answer(body), executor)
        finally:
            # The waiting poll runs in the event loop's next round, when this task is done. A done
            # callback would be one round later, and orders may have come (docs/performance.md).
            self._woken.set()

    async def _wait_for_event(self) -> None:
        """Waits for an answer, a wake-up, or the end of a pause."""
        rest_until = self._session.rests_until()
        pause = max(self._not_before, rest_until or 0.0) - self._clock.now()
        self._rest_until = rest_until if pause > 0 else None
        await self._pause(pause if pause > 0 or not self._open else None)
        self._rest_until = None

    async def _pause(self, delay: float | None) -> None:
        """Waits for a wake-up, at most `delay` seconds unless that is None."""
        timer = None
        if delay is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._woken.clear()

    def _lease_answer(self, body: bytes) -> LeaseAnswer:
        try:
            return _lease_answer.decode(body)
        except msgspec.MsgspecError as error:
            away = AwayError(f"{self._client.server} sent an unreadable answer: {error}")
            self._client.pass_over()
            raise away from None

    def _take_answer(self, call: LeaseCall, answer: LeaseAnswer, executor: Executor) -> None:
        self._server_answered()
        now, held_before = self._clock.now(), self._session.held
        actions = self._session.answered(call, answer, now)
        is_news = actions or self._session.held > held_before
        executor.carry_out(actions)
        executor.renew(now)
        if not is_news and self._came_early(call, now):
            self._not_before = now + EARLY_PAUSE_S

    def _settle(self, call: LeaseCall, task: asyncio.Task[None]) -> bool:
        """Handles how a call ended; False if the server does not know this worker."""
        try:
            task.result()
        except AwayError as away:
            self._session.failed(call)
            self._server_failed(away)
        except RefusedError as refusal:
            return self._refused(call, refusal)
        return True

    def _came_early(self, call: LeaseCall, now: float) -> bool:
        """Whether the server answered without waiting, and no newer call cut the wait short.

        If such an answer changed nothing, the server either had nothing to say, or repeated what
        this worker is done with: an order, say, whose lease ran out here before the server noticed.
        """
        if call.carried or call.number != self._newest_call:
            return False
        return now - call.sent_at < min(EARLY_ANSWER_S, call.spec.wait.seconds)

    def _refused(self, call: LeaseCall, refusal: RefusedError) -> bool:
        if refusal.status in (404, 410):
            return False
        if refusal.status in (400, 413, 422) and self._session.refused(call, refusal.detail):
            self._log.error("the server refused a call; repairing it", why=refusal.detail)
            return True
        raise self._fatal(refusal)

    def _fatal(self, refusal: RefusedError) -> FatalError:
        if refusal.status in (401, 403):
            return FatalError(
                f"{self._client.server} does not accept this worker's token: {refusal.detail}. "
                "Set ROTA_TOKEN to a token with the right to run work"
            )
        if refusal.status == 409:
            return FatalError(
                f"another process has registered as worker {self.worker_id}, so this one stops: "
                f"{refusal.detail}"
            )
        return FatalError(f"{self._client.server} refused this worker: {refusal}")

    def _server_answered(self) -> None:
        if self._failures >= self._client.server_count:
            self._log.info("a server answers again", server=self._client.server)
        elif self._client.server != self._last_server:
            self._log.info("switched to another server", server=self._client.server)
        self._last_server = self._client.server
        self._failures = 0
        self._unreachable_since = None

    def _server_failed(self, away: AwayError) -> None:
        """Decides the pause: none before the next server, and longer ones after each round of
        all."""
        now = self._clock.now()
        rounds, within = divmod(self._failures, self._client.server_count)
        self._failures += 1
        if self._unreachable_since is None:
            self._unreachable_since = now
        if within < self._client.server_count - 1 and away.status != TOO_MANY:
            spread = f"{self._seed}:{self._failures}"
            pause_s = 0.0 if away.status is None else delay_s(spread, 1, NO_LEADER_PAUSE_S)
            self._not_before = now + pause_s
            return
        if rounds == 0:
            self._log.warning("no server is available; retrying", why=away.detail)
        if away.status != TOO_MANY and now < self._unreachable_since + FAILOVER_S:
            self._not_before = now + delay_s(self._seed, rounds, FAILOVER_CAP_S)
            return
        cap_s = max(0.2, min(RETRY_CAP_S, self._session.lease_ttl / 5))
        # Leases must not be lost because a server asks for a pause that is longer than they are.
        asked_s = min(away.retry_after_s, cap_s) if self._session.held else away.retry_after_s
        self._not_before = now + max(asked_s, delay_s(self._seed, rounds, cap_s))

    def _gave_up(self) -> bool:
        """Whether a draining worker stops trying to deliver its last reports.

        After a lease's length the server, once it is back, would rather run the jobs again.
        """
        session = self._session
        if not session.draining or session.held or self._unreachable_since is None:
            return False
        return self._clock.now() > self._unreachable_since + session.lease_ttl


WATCH_S = 1.0
"""Leases are checked at least this often: timers sleep while a machine is suspended."""
WATCH_BUSY_S = 0.25
"""The same while anything is held: an order that waited too long must go back soon."""


class RunLoop:
    """Main loop of one worker: its session, poll loop and executor at work."""

    def __init__(
        self,
        session: Session,
        poll_loop: PollLoop,
        executor: Executor,
        clock: MonotonicClock,
        log: FilteringBoundLogger,
    ) -> None:
        self._session = session
        self._poll_loop = poll_loop
        self._executor = executor
        self._clock = clock
        self._log = log

    async def work(self, spec: RegisterSpec, before_leaving: Callable[[], Awaitable[None]]) -> bool:
        """Works until drained; False if the worker was drained before a server knew it.

        Registers again when a server has forgotten this worker.
        """
        while await self._poll_loop.register(spec):
            if await self._poll_loop.poll_until_drained(self._executor):
                await before_leaving()
                await self._poll_loop.leave()
                return True
            self._log.warning("the server no longer knows this worker; registering again")
            self._executor.carry_out(
                self._session.registration_lost("the server does not know this worker")
            )
        return False

    async def watch(self) -> None:
        """Ends executions that have lost their lease, on the clock that runs through suspend."""
        while True:
            deadline, most_s = self._session.next_deadline(), WATCH_S
            if self._session.held:
                most_s = WATCH_BUSY_S
            left_s = most_s if deadline is None else deadline - self._clock.now()
            await asyncio.sleep(max(0.01, min(most_s, left_s)))
            pending = self._session.pending_reports
            self._executor.carry_out(self._session.expire(self._clock.now()))
            if self._session.pending_reports > pending:
                self._poll_loop.wake()
