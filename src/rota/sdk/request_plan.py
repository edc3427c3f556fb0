"""Request plans: generators that say what to send and when to retry it, and do no I/O.

A plan yields steps and is sent what came of each; an error that a step ended in is thrown into it.
So exponential backoff, streams and waiting are written once, and the blocking client and the
asynchronous one both carry plans out.
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
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read(call: Call[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
    """The answer of a call; raises the error it stands for."""
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
        raise AnswerError(f"{text}; is this a Rota server of a like version?") from error


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
    """The error that a problem document, or whatever came instead of one, stands for."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        said = body[:200].decode("utf-8", "replace").strip()
        problem = Problem("about:blank", f"HTTP {status}", status, said)
    fallback = ServerError if status >= 500 else InvalidError
    return _BY_STATUS.get(status, fallback)(problem, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def is_passing(error: ApiError) -> bool:
    """Whether the same call may well succeed a little later."""
    return error.status in (429, 502, 503, 504)


FIRST_SWITCH_S = 0.4
"""How long the first round of several servers is waited for, each, where any of them would do. It
doubles with every round: servers that are all slow are not asked ever faster."""
SWITCH_BYTES_S = 1_000_000
"""What is large takes longer everywhere: a second for so many bytes."""
EXPECTED_MAX = 10_000
"""Jobs of transactions that are remembered; nobody waits for all the others."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request; comes back with its `Answer`."""

    call: Call[Any]
    headers: dict[str, str]
    tried: int = 0
    """How often it has been sent before."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open an answer to be read as it comes; one that is still open is closed first."""

    call: Call[bytes]
    headers: dict[str, str]
    quiet_s: float
    """Breaks off with SilenceError when nothing came for so long."""


@dataclass(frozen=True, slots=True)
class ReadMore:
    """Comes back with the next bytes of what is open, or None at its end."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let so much time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EmitItem:
    """Hand this to the caller, who iterates."""

    item: Any


PlanStep: TypeAlias = SendRequest | OpenStream | ReadMore | Sleep | EmitItem
RequestPlan: TypeAlias = Generator[PlanStep, Any, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on asking a server that is busy, starting or away."""

    retry_for_s: float = 30.0
    """Gives up when this has passed since the first failure."""
    first_contact_s: float | None = None
    """The same for a server that has not answered this client yet; None: no different."""
    connect_s: float = 5.0
    read_s: float = 60.0
    """Longer than a long poll is held."""
    switch_s: float = 10.0
    """How long one of several servers is waited for; then the next is asked, under the same key."""


class ClientState:
    """What a flow needs to know of the client it runs for."""

    def __init__(self, clock: Clock, patience: Patience, servers: Servers) -> None:
        self.clock = clock
        self.patience = patience
        self.servers = servers
        self.reached = False
        """The server has answered once."""
        self.expected_jobs: dict[str, None] = {}
        """Jobs submitted in a transaction, until a server was seen to know them."""

    def mint_key(self) -> str:
        """A new idempotency key."""
        return uuid7(self.clock.now_ms(), secrets.token_bytes(10))

    def expect_job(self, job_id: str) -> None:
        """Servers will know this job a moment after its transaction has been committed."""
        self.expected_jobs[job_id] = None
        if len(self.expected_jobs) > EXPECTED_MAX:
            self.expected_jobs.pop(next(iter(self.expected_jobs)), None)

    def read_s(self, call: Call[Any], tried: int = 0) -> float:
        """How long to wait for an answer, when it was asked for so often before."""
        if call.held or self.servers.given_count == 1:
            return self.patience.read_s
        most_s = min(self.patience.read_s, self.patience.switch_s)
        if not call.anywhere:
            return most_s
        rounds = min(tried // self.servers.given_count, 20)
        grown_s = FIRST_SWITCH_S * 2.0**rounds + len(call.body or b"") / SWITCH_BYTES_S
        return min(most_s, grown_s)

    def patience_s(self) -> float:
        """How long it is worth to go on asking."""
        if not self.reached and self.patience.first_contact_s is not None:
            return self.patience.first_contact_s
        return self.patience.retry_for_s


class PlanRun(Generic[T]):
    """A flow under way: the step it waits for, until it has a result."""

    def __init__(self, plan: RequestPlan[T]) -> None:
        self._plan = plan
        self._result: list[T] = []
        self.step: PlanStep | None = None
        self.take(None)

    @property
    def result(self) -> T:
        """What the flow came to; there once there is no step."""
        return self._result[0]

    def take(self, came: Any) -> None:
        """What came of the step."""
        try:
            self.step = self._plan.send(came)
        except StopIteration as stop:
            self._end(stop.value)

    def fail(self, error: UnreachableError | ApiError) -> None:
        """The step ended in an error; the flow may know what to do."""
        try:
            self.step = self._plan.throw(error)
        except StopIteration as stop:
            self._end(stop.value)

    def _end(self, result: T) -> None:
        self.step = None
        self._result.append(result)


def ask(state: ClientState, call: Call[Any], key: str | None = None) -> RequestPlan[Answer]:
    """The answer of a call, unread. A write is repeated only under the key of its first try, so
    however often it is sent it happens once."""
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
    """Refuses what no server takes; an empty one would say the same for every caller."""
    if key is None:
        return
    if not (0 < len(key) <= KEY_CHARS_MAX and key.isascii() and key.isprintable()):
        raise KeyFormatError(key)


def fetch(state: ClientState, call: Call[T], key: str | None = None) -> RequestPlan[T]:
    """The answer of a call."""
    answer = yield from ask(state, call, key)
    return read(call, answer.status, answer.headers, answer.body)


class RetryBackoff:
    """The waits of one call that is being repeated."""

    def __init__(self, state: ClientState, seed: str) -> None:
        self._state = state
        self._seed = seed
        self.tried = 0
        """Failures in a row."""
        self._failing_since_s = 0.0

    def after(self, error: UnreachableError | ApiError) -> RequestPlan[None]:
        """Waits, if another try may help and there is time for one; raises the error if not."""
        if isinstance(error, ApiError) and not is_passing(error):
            raise error
        if self.tried == 0:
            self._failing_since_s = self._state.clock.elapsed_s()
        self.tried += 1
        wait_s = self._wait_s(error)
        spent_s = self._state.clock.elapsed_s() - self._failing_since_s
        # However little patience there is, each server is asked once.
        if self.tried >= self._state.servers.given_count and (
            spent_s + wait_s > self._state.patience_s()
        ):
            raise error
        yield Sleep(wait_s)

    def _wait_s(self, error: UnreachableError | ApiError) -> float:
        """Little before another server is asked, longer after each round of all of them."""
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        if isinstance(error, LimitError):
            return pause_s(self.tried, self._seed, asked_s)
        rounds, within = divmod(self.tried - 1, self._state.servers.given_count)
        if within == self._state.servers.given_count - 1:
            return pause_s(rounds + 1, self._seed, asked_s)
        return 0.0 if isinstance(error, UnreachableError) else pause_s(1, f"{self._seed}:{within}")

    def reset(self) -> None:
        """Something came: the next failure is a first one again."""
        self.tried = 0
