"""Job functions: the object that `@app.job` makes of a function, typed so that a type checker finds
wrong calls.

ParamSpec cannot add keywords to a function's own, so `submit` is overloaded: exactly the function's
parameters; or its positional ones with options after them. The alternatives are in
docs/decisions/0030-overloads-for-typed-submit.md.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import (
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from rota.sdk.arguments import ArgumentError, FunctionSignature, document, encode_arguments
from rota.sdk.calls import uuid7
from rota.sdk.clock import Clock
from rota.sdk.context import Context, ContextInfo, current_or_none
from rota.sdk.declare.handles import AsyncJob, AsyncPort, Job, Port
from rota.sdk.declare.options import CALL_OPTIONS, CallOptions, check_names, job_body, merged
from rota.sdk.transactions import refuse_key
from rota.wire.limits import PAYLOAD_BYTES_MAX


class NullTransport:
    """Transport that drops all reports, for a call without a worker."""

    def report_progress(self, fraction: float, message: str) -> None: ...

    def write_log(self, text: str) -> None: ...


def run_once(
    function: Callable[..., Any], signature: FunctionSignature, payload: bytes, context: Context
) -> bytes:
    """Runs one attempt and returns the result as JSON. Raises what the function raises."""
    args, kwargs = signature.decode(payload, context)
    with context.active():
        returned = run_to_end(function, args, kwargs)
    return document(f"the result of {signature.name}", returned)


def run_to_end(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function, and waits for it if it is asynchronous, whether or not an event loop is
    running.
    """
    if not inspect.iscoroutinefunction(function):
        return function(*args, **kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(function(*args, **kwargs))
    return _run_in_thread(function, args, kwargs)


def _run_in_thread(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Runs a coroutine in an event loop of its own, because the current one cannot be entered
    twice.
    """
    done: Future[Any] = Future()
    here = contextvars.copy_context()

    def run_loop() -> None:
        try:
            done.set_result(here.run(asyncio.run, function(*args, **kwargs)))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
            done.set_exception(error)

    thread = threading.Thread(target=run_loop, name="rota-inline")
    thread.start()
    thread.join()
    return done.result()


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

OnProgress = Callable[[int], None]


class FunctionRegistry(Protocol):
    """Registry of functions that submits their jobs: the app."""

    clock: Clock

    def port(self) -> Port: ...

    def async_port(self) -> AsyncPort: ...


class Takes(Protocol[P, R_co]):
    """Function with these parameters: used by overloads to name the parameters they are for."""

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Any method with the function's own signature would do."""
        ...


class _Submission(NamedTuple):
    """Job of one submission, and the options that are not part of it."""

    body: dict[str, Any]
    key: str | None
    conn: Any


class JobFunction(Generic[P, R]):
    """A function that can be called, and submitted as a job."""

    def __init__(
        self,
        registry: FunctionRegistry,
        signature: FunctionSignature,
        function: Callable[..., Any],
        options: dict[str, Any],
    ) -> None:
        self.name = signature.name
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = signature
        self._registry = registry
        self._options = options
        functools.update_wrapper(cast("Any", self), function)

    def __repr__(self) -> str:
        return f"<job function {self.name}>"

    @property
    def wants_ctx(self) -> bool:
        return self.signature.wants_context

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """Returns the same function with other options; its `.submit` is fully type-checked."""
        check_names(options, CALL_OPTIONS, self.name)
        return type(self)(
            self._registry, self.signature, self.function, merged(self._options, options)
        )

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function here as a worker would, with arguments and result through JSON and
        back.
        """
        payload = self.payload(args, kwargs)
        returned = run_once(self.function, self.signature, payload, self._context())
        result: R = self.signature.result(msgspec.json.decode(returned))
        return result

    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def submit(self: Takes[[], R], **options: Unpack[CallOptions]) -> Job[R]: ...
    @overload
    def submit(self: Takes[[A], R], a: A, /, **options: Unpack[CallOptions]) -> Job[R]: ...
    @overload
    def submit(self: Takes[[A, B], R], a: A, b: B, /, **options: Unpack[CallOptions]) -> Job[R]: ...
    @overload
    def submit(
        self: Takes[[A, B, C], R], a: A, b: B, c: C, /, **options: Unpack[CallOptions]
    ) -> Job[R]: ...
    @overload
    def submit(
        self: Takes[[A, B, C, D], R], a: A, b: B, c: C, d: D, /, **options: Unpack[CallOptions]
    ) -> Job[R]: ...
    def submit(self, *args: Any, **kwargs: Any) -> Job[Any]:
        """Submits a call as a job; the job is durable when this returns.

        Keywords that are not parameters of the function are options.
        """
        port = self._registry.port()
        job = self._job(args, kwargs)
        if job.conn is not None:
            return Job(port.submit_in(job.conn, job.body), port, self.signature.result)
        return Job(
            port.submit(job.body, idempotency_key=job.key).job_id, port, self.signature.result
        )

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R]:
        """Submits a call as a job, for asyncio; set options by `.options(…)`."""
        port = self._registry.async_port()
        job = self._job(args, kwargs)
        if job.conn is not None:
            return AsyncJob(await port.submit_in(job.conn, job.body), port, self.signature.result)
        view = await port.submit(job.body, idempotency_key=job.key)
        return AsyncJob(view.job_id, port, self.signature.result)

    @overload
    def submit_many(
        self: Takes[[A], R], calls: Iterable[tuple[A]], *, on_progress: OnProgress | None = None
    ) -> list[Job[R]]: ...
    @overload
    def submit_many(
        self: Takes[[A, B], R],
        calls: Iterable[tuple[A, B]],
        *,
        on_progress: OnProgress | None = None,
    ) -> list[Job[R]]: ...
    @overload
    def submit_many(
        self: Takes[[A, B, C], R],
        calls: Iterable[tuple[A, B, C]],
        *,
        on_progress: OnProgress | None = None,
    ) -> list[Job[R]]: ...
    @overload
    def submit_many(
        self: Takes[[A, B, C, D], R],
        calls: Iterable[tuple[A, B, C, D]],
        *,
        on_progress: OnProgress | None = None,
    ) -> list[Job[R]]: ...
    def submit_many(
        self: Any, calls: Iterable[tuple[Any, ...]], *, on_progress: OnProgress | None = None
    ) -> list[Job[Any]]:
        """Submits a call for each tuple of positional arguments, in batches."""
        jobs: list[Job[Any]] = self._submit_all(calls, on_progress)
        return jobs

    def map(
        self: Takes[[A], R], values: Iterable[A], *, on_progress: OnProgress | None = None
    ) -> list[Job[R]]:
        """Submits a call for each value, in batches."""
        assert isinstance(self, JobFunction)
        jobs: list[Job[R]] = self._submit_all(((value,) for value in values), on_progress)
        return jobs

    def payload(self, args: Iterable[Any], kwargs: dict[str, Any]) -> bytes:
        """Encodes the arguments; raises ArgumentError if they do not fit."""
        args = tuple(args)
        self.signature.bind(args, kwargs)
        payload = encode_arguments(self.name, args, kwargs)
        if len(payload) > PAYLOAD_BYTES_MAX:
            text = f"the arguments of {self.name} are {len(payload)} bytes as JSON"
            raise ArgumentError(
                f"{text}, {PAYLOAD_BYTES_MAX} at most: put large input into a bundle"
            )
        return payload

    def template(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Builds the job of a call with these arguments, for a schedule or trigger to submit."""
        return self._job(args, kwargs)[0]

    def _submit_all(
        self, calls: Iterable[tuple[Any, ...]], on_progress: OnProgress | None
    ) -> list[Job[Any]]:
        port = self._registry.port()
        bodies = (self._job(args, {}).body for args in calls)
        conn, key = self._options.get("conn"), self._options.get("idempotency_key")
        if conn is not None:
            ids = [port.submit_in(conn, body) for body in bodies]
        else:
            ids = port.submit_many(bodies, on_progress=on_progress, idempotency_key=key)
        return [Job(job_id, port, self.signature.result) for job_id in ids]

    def _job(self, args: Any, kwargs: Any) -> _Submission:
        own, chosen = self.signature.split(kwargs, CALL_OPTIONS)
        options = merged(self._options, chosen)
        payload = self.payload(args, own)
        key = options.get("concurrency_key")
        if callable(key):
            options["concurrency_key"] = key(*args, **own)
        body = job_body(self.name, options, self._registry.clock.now_ms())
        body["payload"] = msgspec.Raw(payload)
        conn = options.get("conn")
        if conn is not None:
            refuse_key(options.get("idempotency_key"))
        return _Submission(body, options.get("idempotency_key"), conn)

    def _context(self) -> Context:
        found = current_or_none()
        if found is not None:
            return found
        made = uuid7(self._registry.clock.now_ms(), bytes(10))
        return Context(ContextInfo(job_id=made, execution_id=made, name=self.name), NullTransport())

    def _call(self, args: Any, kwargs: Any) -> Any:
        """Calls the plain function, with the context of the surrounding job if there is one."""
        if not self.wants_ctx:
            return self.function(*args, **kwargs)
        return self.function(self._context(), *args, **kwargs)


class SyncFunction(JobFunction[P, R]):
    """Job function made of a `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        returned: R = self._call(args, kwargs)
        return returned


class AsyncFunction(JobFunction[P, R]):
    """Job function made of an `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self._call(args, kwargs)
        return coroutine
