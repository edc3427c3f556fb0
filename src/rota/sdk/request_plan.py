"""Request plans: generators that say what to send and when to retry it, and do no I/O.

A plan yields steps and is sent the result of each; the error of a step is thrown into it. So
exponential backoff, streams and waiting are written once, and both the blocking and the
asynchronous client execute plans.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from rota.sdk.backoff import pause_s
from rota.sdk.calls import Call, uuid7
from rota.sdk.clock import Clock
from rota.sdk.context import current_traceparent
from rota.sdk.errors import (
    AnswerError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KeyFormatError,
    LimitError,
    NotFoundError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)
from rota.sdk.servers import Servers
from rota.wire.limits import KEY_CHARS_MAX
from rota.wire.problems import Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read(call: Call[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
    """Decodes the answer of a call; raises the error it stands for."""
    if status >= 300:
        raise error_of(status, headers, body)
    if call.answer is type(None):
        return None
    if call.answer is bytes:
        return body  # type: ignore[return-value]  # T is bytes here
    try:
        return msgspec.json.decode(body, type=call.answer)
    except msgspec.MsgspecError as error:
        text = f"cannot read the answer to {call.method} {call.path}: {error}"
        raise AnswerError(f"{text}; is this a Rota server of a similar version?") from error


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: LimitError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
    507: UnavailableError,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The exception for a problem document, or for any other body of an error."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        text = body[:200].decode("utf-8", "replace").strip()
        problem = Problem("about:blank", f"HTTP {status}", status, text)
    fallback = ServerError if status >= 500 else InvalidError
    return _BY_STATUS.get(status, fallback)(problem, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def is_passing(error: ApiError) -> bool:
    """Whether the same call may succeed a little later."""
    return error.status in (429, 502, 503, 504)


FIRST_SWITCH_S = 0.4
"""How long each server is waited for in the first round, if any server can answer. It doubles with
every round, so that slow servers are not asked ever faster.
"""
SWITCH_BYTES_S = 1_000_000
"""Large requests take longer: one more second for this many bytes."""
EXPECTED_MAX = 10_000
"""Jobs of transactions that are remembered; most are never waited for."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Step: send a request; the result is its `Answer`."""

    call: Call[Any]
    headers: dict[str, str]
    tried: int = 0
    """How often it has been sent before."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Step: open an answer to be read in chunks; one that is still open is closed first."""

    call: Call[bytes]
    headers: dict[str, str]
    quiet_s: float
    """Raises SilenceError if nothing arrives for this long."""


@dataclass(frozen=True, slots=True)
class ReadMore:
    """Step: read the next bytes of the open answer; the result is None at its end."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Step: wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EmitItem:
    """Step: hand an item to the caller, who iterates."""

    item: Any


PlanStep: TypeAlias = SendRequest | OpenStream | ReadMore | Sleep | EmitItem
RequestPlan: TypeAlias = Generator[PlanStep, Any, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts: how long to retry while a server is busy, starting or away."""

    retry_for_s: float = 30.0
    """Gives up this long after the first failure."""
    first_contact_s: float | None = None
    """Replaces `retry_for_s` for a server that has not answered this client yet; None: no
    difference.
    """
    connect_s: float = 5.0
    read_s: float = 60.0
    """Longer than the server holds a long poll."""
    switch_s: float = 10.0
    """How long one of several servers is waited for; then the next one is asked, under the same
    key.
    """


class ClientState:
    """State of a client that its plans share."""

    def __init__(self, clock: Clock, patience: Patience, servers: Servers) -> None:
        self.clock = clock
        self.patience = patience
        self.servers = servers
        self.reached = False
        """Whether a server has answered once."""
        self.expected_jobs: dict[str, None] = {}
        """Jobs submitted in a transaction, until a server is known to have them."""

    def mint_key(self) -> str:
        """Makes a new idempotency key."""
        return uuid7(self.clock.now_ms(), secrets.token_bytes(10))

    def expect_job(self, job_id: str) -> None:
        """Remembers a job that servers will know shortly after its transaction is committed."""
        self.expected_jobs[job_id] = None
        if len(self.expected_jobs) > EXPECTED_MAX:
            self.expected_jobs.pop(next(iter(self.expected_jobs)), None)

    def read_s(self, call: Call[Any], tried: int = 0) -> float:
        """Timeout of an answer, for a call that was sent `tried` times before."""
        if call.held or self.servers.given_count == 1:
            return self.patience.read_s
        most_s = min(self.patience.read_s, self.patience.switch_s)
        if not call.anywhere:
            return most_s
        rounds = min(tried // self.servers.given_count, 20)
        grown_s = FIRST_SWITCH_S * 2.0**rounds + len(call.body or b"") / SWITCH_BYTES_S
        return min(most_s, grown_s)

    def patience_s(self) -> float:
        """How long retrying is worthwhile."""
        if not self.reached and self.patience.first_contact_s is not None:
            return self.patience.first_contact_s
        return self.patience.retry_for_s


class PlanRun(Generic[T]):
    """Execution of a plan: its current step, until it has a result."""

    def __init__(self, plan: RequestPlan[T]) -> None:
        self._plan = plan
        self._result: list[T] = []
        self.step: PlanStep | None = None
        self.take(None)

    @property
    def result(self) -> T:
        """The plan's result; available once there is no step."""
        return self._result[0]

    def take(self, result: Any) -> None:
        """Sends the result of the step to the plan."""
        try:
            self.step = self._plan.send(result)
        except StopIteration as stop:
            self._end(stop.value)

    def fail(self, error: UnreachableError | ApiError) -> None:
        """Throws the step's error into the plan, which may handle it."""
        try:
            self.step = self._plan.throw(error)
        except StopIteration as stop:
            self._end(stop.value)

    def _end(self, result: T) -> None:
        self.step = None
        self._result.append(result)


def ask(state: ClientState, call: Call[Any], key: str | None = None) -> RequestPlan[Answer]:
    """Returns the undecoded answer of a call. A write is repeated only with the idempotency key of
    its first attempt, so it happens once.
    """
    check_key(key)
    seed = state.mint_key() if key is None else key
    headers = {"Idempotency-Key": seed} if call.keyed else {}
    if call.keyed and (trace := current_traceparent()):
        headers["traceparent"] = trace
    retrying = RetryBackoff(state, seed)
    while True:
        try:
            answer: Answer = yield SendRequest(call, headers, retrying.tried)
            return answer
        except (UnreachableError, ApiError) as error:
            yield from retrying.after(error)


def check_key(key: str | None) -> None:
    """Raises KeyFormatError for a key that no server accepts; an empty one would be the same for
    every caller.
    """
    if key is None:
        return
    if not (0 < len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        raise KeyFormatError(key)


def fetch(state: ClientState, call: Call[T], key: str | None = None) -> RequestPlan[T]:
    """Returns the decoded answer of a call."""
    answer = yield from ask(state, call, key)
    return read(call, answer.status, answer.headers, answer.body)


class RetryBackoff:
    """Exponential backoff of one call that is repeated."""

    def __init__(self, state: ClientState, seed: str) -> None:
        self._state = state
        self._seed = seed
        self.tried = 0
        """Failures in a row."""
        self._failing_since_s = 0.0

    def after(self, error: UnreachableError | ApiError) -> RequestPlan[None]:
        """Waits, if another attempt may help and there is time for one; otherwise
        raises the error.
        """
        if isinstance(error, ApiError) and not is_passing(error):
            raise error
        if self.tried == 0:
            self._failing_since_s = self._state.clock.elapsed_s()
        self.tried += 1
        wait_s = self._wait_s(error)
        spent_s = self._state.clock.elapsed_s() - self._failing_since_s
        # Even with the shortest timeout each server is asked once.
        if self.tried >= self._state.servers.given_count and (
            spent_s + wait_s > self._state.patience_s()
        ):
            raise error
        yield Sleep(wait_s)

    def _wait_s(self, error: UnreachableError | ApiError) -> float:
        """Short before another server is asked, longer after each round of all servers."""
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        if isinstance(error, LimitError):
            return pause_s(self.tried, self._seed, asked_s)
        rounds, within = divmod(self.tried - 1, self._state.servers.given_count)
        if within == self._state.servers.given_count - 1:
            return pause_s(rounds + 1, self._seed, asked_s)
        return 0.0 if isinstance(error, UnreachableError) else pause_s(1, f"{self._seed}:{within}")

    def reset(self) -> None:
        """Starts again from the first delay, because data has arrived."""
        self.tried = 0
