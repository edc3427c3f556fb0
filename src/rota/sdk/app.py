"""`App`: registers a program's functions as jobs, with their schedules and triggers, and connects
when a job is submitted.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from rota.sdk.arguments import FunctionSignature
from rota.sdk.async_client import AsyncClient
from rota.sdk.calls import JobLike
from rota.sdk.client import Client
from rota.sdk.clock import Clock, SystemClock
from rota.sdk.context import Context
from rota.sdk.declare.functions import AsyncFunction, JobFunction, SyncFunction
from rota.sdk.declare.handles import AsyncJob, AsyncPort, Job, Port
from rota.sdk.declare.inline import AsyncRuns, Runs
from rota.sdk.declare.options import (
    DECLARATION,
    Declaration,
    JobOptions,
    Length,
    check_names,
    check_values,
    merged,
)
from rota.sdk.declare.schedules import SCHEDULE_OPTIONS, ScheduleDecorator, ScheduleOptions
from rota.sdk.declare.triggers import TRIGGER_OPTIONS, TriggerDecorator, TriggerOptions
from rota.sdk.transactions import refuse_key
from rota.wire.schedules import DeployAnswer

__all__ = ["App", "JobFunction"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class WithContext(Protocol[P, R_co]):
    """A function whose first parameter is named `ctx`: the worker fills it, so callers do not."""

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The name counts: a first parameter of type Any must not be taken for a context."""
        ...


class JobDecorator:
    """`@app.job`, and `@app.job(…)` with options."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    # mypy calls the pairs overlapping, because a coroutine is a result too; the first match wins.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: WithContext[P, Coroutine[Any, Any, R]], /
    ) -> AsyncFunction[P, R]: ...
    @overload
    def __call__(self, function: WithContext[P, R], /) -> SyncFunction[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncFunction[P, R]: ...
    @overload
    def __call__(self, **options: Unpack[Declaration]) -> JobDecorator: ...
    def __call__(self, *given: Any, **options: Any) -> Any:
        """Registers a function, or takes options and waits for one."""
        check_names(options, DECLARATION, "@app.job")
        known = merged(self._options, options)
        if not given:
            return JobDecorator(self._app, known)
        return self._app.register(given[0], known)


class App:
    """Registry of a program's job functions, schedules and triggers.

        app = App()

        @app.job(retries=3, timeout="5m")
        def invoice(customer: int) -> str: ...

        invoice.submit(42)      # runs on `rota worker --app shop:app`

    Without a URL the server is found when the first job is submitted; creating an app and importing
    its module do no I/O. Threads may share it.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        inline: bool = False,
        clock: Clock | None = None,
        **defaults: Unpack[JobOptions],
    ) -> None:
        check_names(defaults, tuple(JobOptions.__annotations__), "App")
        check_values("App", defaults)
        self.functions: dict[str, JobFunction[..., Any]] = {}
        """Every function that a worker of this app can run, by name."""
        self.declared: dict[str, dict[str, Any]] = {}
        """Every schedule of this app, by name, as the API takes it."""
        self.reactions: dict[str, dict[str, Any]] = {}
        """Every trigger of this app, by name, as the API takes it."""
        self.clock = clock or SystemClock()
        self.job = JobDecorator(self, dict(defaults))
        self._url, self._token = url, token
        self._clients: dict[int, Client] = {}
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._runs = Runs(self) if inline else None

    def __repr__(self) -> str:
        return f"<App of {len(self.functions)} functions>"

    def register(self, function: Callable[..., Any], options: dict[str, Any]) -> Any:
        """Registers a function as a job; `@app.job` calls this."""
        if isinstance(function, JobFunction):
            raise TypeError(f"{function.name} is a job already")
        if not callable(function):
            raise TypeError(f"@app.job is for functions, not for {function!r}")
        options = dict(options)
        name = options.pop("name", None) or function.__name__
        check_values(name, options)
        signature = FunctionSignature(name, function)
        signature.check()
        kind = AsyncFunction if inspect.iscoroutinefunction(function) else SyncFunction
        made: JobFunction[..., Any] = kind(self, signature, function, options)
        there = self.functions.get(name)
        if there is not None and not _is_same_function(there.function, function):
            place = f"{there.function.__module__}.{there.function.__qualname__}"
            raise ValueError(f"two functions are named {name!r}, the other is {place}: rename one")
        self.functions[name] = made
        return made

    def submit(
        self, job: JobLike, *, idempotency_key: str | None = None, conn: Any = None
    ) -> Job[Any]:
        """Submits any job, as the API takes it; for a function use `function.submit(…)`.

        With `conn`, a PostgreSQL connection of the application's own, the job exists once the
        transaction of that connection is committed.
        """
        port = self.port()
        if conn is None:
            return Job(port.submit(job, idempotency_key=idempotency_key).job_id, port, _identity)
        refuse_key(idempotency_key)
        return Job(port.submit_in(conn, job), port, _identity)

    async def submit_async(
        self, job: JobLike, *, idempotency_key: str | None = None, conn: Any = None
    ) -> AsyncJob[Any]:
        """Submits any job, for asyncio."""
        port = self.async_port()
        if conn is None:
            view = await port.submit(job, idempotency_key=idempotency_key)
            return AsyncJob(view.job_id, port, _identity)
        refuse_key(idempotency_key)
        return AsyncJob(await port.submit_in(conn, job), port, _identity)

    def cron(
        self, expression: str, *, tz: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> ScheduleDecorator:
        """Runs a function by a cron expression, on the wall clock of a zone; see `deploy`.

        @app.cron("0 9 * * MON-FRI", tz="Europe/Berlin")
        def report() -> None: ...
        """
        check_names(options, SCHEDULE_OPTIONS, "@app.cron")
        return ScheduleDecorator(self, {"cron": expression, "timezone": tz}, options)

    def every(
        self,
        interval: Length,
        *,
        after: Literal["start", "finish"] = "start",
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Runs a function at an interval; `after="finish"` counts from the end of each job."""
        check_names(options, SCHEDULE_OPTIONS, "@app.every")
        length = interval.total_seconds() if isinstance(interval, timedelta) else interval
        return ScheduleDecorator(self, {"interval": length, "from": after}, options)

    def on(self, event: str, **options: Unpack[TriggerOptions]) -> TriggerDecorator:
        """Runs a function for each event of a type (`prefix.*` for many); see `deploy`.

        @app.on("object.uploaded", where="data.size > 1000")
        def scan(event: dict) -> None: ...
        """
        check_names(options, TRIGGER_OPTIONS, "@app.on")
        return TriggerDecorator(self, event, options)

    def deploy(self, owner: str) -> DeployAnswer:
        """Makes the server's schedules and triggers of `owner` exactly those that are declared
        here.

        New ones are created, changed ones updated, and those that are no longer declared retired.
        Nothing else deploys, not even the start of a worker, so that an old worker cannot bring
        back what a newer version removed.
        """
        done = self.client.deploy_schedules(owner, list(self.declared.values()))
        more = self.client.deploy_triggers(owner, list(self.reactions.values()))
        return DeployAnswer(
            created=done.created + more.created,
            changed=done.changed + more.changed,
            unchanged=done.unchanged + more.unchanged,
            retired=done.retired + more.retired,
        )

    @property
    def client(self) -> Client:
        """The client that jobs are submitted with: one for each process, opened when needed."""
        pid = os.getpid()
        found = self._clients.get(pid)
        if found is None:
            # After a fork the connections belong to the parent: using them here as well would mix
            # the requests and answers of both processes.
            found = self._clients.setdefault(pid, Client(self._url, self._token))
            weakref.finalize(self, _close_own, found, pid)
        return found

    @property
    def async_client(self) -> AsyncClient:
        """The client for asyncio: one for each event loop, opened when needed."""
        loop = asyncio.get_running_loop()
        found = self._async_clients.get(loop)
        if found is None:
            found = self._async_clients[loop] = AsyncClient(self._url, self._token)
        return found

    def port(self) -> Port:
        """Returns the target of submissions: the server, or inline runs."""
        return self._runs if self._runs is not None else self.client

    def async_port(self) -> AsyncPort:
        """Returns the target of submissions for asyncio."""
        return AsyncRuns(self._runs) if self._runs is not None else self.async_client

    @property
    def runs(self) -> Runs:
        """The jobs that ran inline, for an app with `inline=True` or inside `inline()`."""
        if self._runs is None:
            raise LookupError("this app is not inline: use `with app.inline() as runs`")
        return self._runs

    @contextmanager
    def inline(self, *, eager: bool = True) -> Iterator[Runs]:
        """Runs jobs in this process inside the block, without a server: for tests.

        Each runs when it is submitted, or with `eager=False` when `runs.run_all()` is called.
        """
        before, self._runs = self._runs, Runs(self, eager=eager)
        try:
            yield self._runs
        finally:
            self._runs = before

    def close(self) -> None:
        """Closes the connections; the next submission opens new ones."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _identity(result: Any) -> Any:
    return result


def _close_own(client: Client, pid: int) -> None:
    """Closes a client at the end of the process that opened it, not in a forked child."""
    if os.getpid() == pid:
        client.close()


def _is_same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether a module that is loaded again registers its function again."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
