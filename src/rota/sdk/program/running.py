"""Runs a function in this process as a worker would: arguments and result through JSON."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rota.sdk.context import Context
from rota.sdk.documents import document
from rota.sdk.program.arguments import Shape


class Silent:
    """The transport of a call that no worker made: nobody listens."""

    def report_progress(self, fraction: float, message: str) -> None:
        """To nobody."""

    def write_log(self, text: str) -> None:
        """To nobody."""


def run_once(function: Callable[..., Any], shape: Shape, payload: bytes, context: Context) -> bytes:
    """One try; what it returned, as JSON. Raises what the function raises."""
    args, kwargs = shape.decode(payload, context)
    with context.active():
        returned = run_to_end(function, args, kwargs)
    return document(f"the result of {shape.name}", returned)


def run_to_end(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function, and waits for it if it is asynchronous, whether a loop runs here or not."""
    if not inspect.iscoroutinefunction(function):
        return function(*args, **kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(function(*args, **kwargs))
    return _run_beside(function, args, kwargs)


def _run_beside(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """In a loop of its own: the one here cannot be entered twice."""
    done: Future[Any] = Future()
    here = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(here.run(asyncio.run, function(*args, **kwargs)))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
            done.set_exception(error)

    thread = threading.Thread(target=run, name="rota-inline")
    thread.start()
    thread.join()
    return done.result()
