"""Walks flows over blocking connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rota.sdk import flows
from rota.sdk.answers import Answer
from rota.sdk.calls import Call
from rota.sdk.clock import Clock, SystemClock
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import ApiError, UnreachableError
from rota.sdk.flows import Course, Emit, Flow, Patience, Terms
from rota.sdk.servers import Servers

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class Carrier:
    """The servers of one cell, one token, one pool of connections. Threads may share it."""

    def __init__(
        self,
        endpoint: Endpoint,
        patience: Patience | None = None,
        *,
        clock: Clock | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        from rota.sdk.lines.pool import Pool

        self.endpoint = endpoint
        servers = Servers(endpoint.urls)
        self.terms = Terms(clock or SystemClock(), patience or Patience(), servers)
        self._pool = Pool(endpoint, self.terms, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connections back."""
        self._pool.close()

    def call(self, call: Call[T], *, key: str | None = None) -> T:
        """The answer of a call."""
        return self.run(flows.fetch(self.terms, call, key))

    def ask(self, call: Call[Any], *, key: str | None = None) -> Answer:
        """The same, unread: for those who pass the bytes on as they are."""
        return self.run(flows.ask(self.terms, call, key))

    def run(self, flow: Flow[T]) -> T:
        """Walks a flow to its end."""
        course = Course(flow)
        for _ in self._walk(course):
            pass
        return course.result

    def iterate(self, flow: Flow[Any]) -> Iterator[Any]:
        """Walks a flow for what it emits."""
        return self._walk(Course(flow))

    def _walk(self, course: Course[Any]) -> Iterator[Any]:
        with closing(self._pool.talk()) as talk:
            while (step := course.step) is not None:
                if isinstance(step, Emit):
                    yield step.item
                    course.take(None)
                    continue
                try:
                    came = talk.take(step)
                except (UnreachableError, ApiError) as error:
                    course.fail(error)
                else:
                    course.take(came)
