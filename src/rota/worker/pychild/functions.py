"""Finds the function that a call names, and decodes its arguments."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from rota.sdk.app import App, JobFunction
from rota.sdk.arguments import FunctionSignature, Payload
from rota.sdk.context import Context
from rota.wire.jobs import PythonCall
from rota.worker.pychild.protocol import Begin

FOUND_MAX = 10_000
"""Functions cached: more than any code base calls as jobs."""

_python_call = msgspec.json.Decoder(PythonCall)


class FunctionNotFoundError(Exception):
    """Raised when this worker has no such function."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_call = msgspec.json.Decoder(_Call)


class FoundFunction:
    """Function that is ready to be called."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = function
        self.asynchronous = inspect.iscoroutinefunction(function)
        try:
            self._signature: FunctionSignature | None = FunctionSignature(name, function)
        except ValueError:
            self._signature = None  # written in C, without a signature: it gets what was given

    def arguments(self, given: bytes, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Decodes the arguments as the function's annotations require."""
        if self._signature is not None:
            return self._signature.decode(given, context)
        call = _call.decode(given)
        return call.args, call.kwargs


def load_entry(entry: str) -> Any:
    """Imports what `package.module:name` names; raises FunctionNotFoundError, or what the import
    raises."""
    module_name, _, path = entry.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name != missing and not module_name.startswith(missing + "."):
            raise  # the module is there, but something that it needs is not
        raise FunctionNotFoundError(f"there is no module {missing} on this worker") from None
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise FunctionNotFoundError(f"module {module_name} has no {path}") from None
    return found


class FunctionLookup:
    """Finds functions of the app and of importable modules, and caches them."""

    def __init__(self, app: App | None) -> None:
        self._app = app
        self._found: dict[str, FoundFunction] = {}

    def find(self, begin: Begin) -> tuple[FoundFunction, bytes]:
        """Returns the function and its arguments as JSON; raises whatever prevents it from being
        found."""
        if begin.task == b"null":
            return self._registered(begin.name), canonical_payload(begin.payload)
        task = _python_call.decode(begin.task)
        given = msgspec.json.encode(Payload(task.args, task.kwargs))
        return self._imported(task.entry), given

    def _registered(self, name: str) -> FoundFunction:
        found = self._found.get(name)
        if found is None:
            if self._app is None or name not in self._app.functions:
                raise FunctionNotFoundError(f"no function {name} is registered on this worker")
            found = self._remember(name, self._app.functions[name].function)
        return found

    def _imported(self, entry: str) -> FoundFunction:
        found = self._found.get(entry)
        if found is None:
            named = load_entry(entry)
            function = named.function if isinstance(named, JobFunction) else named
            if not callable(function):
                raise FunctionNotFoundError(
                    f"{entry} is no function but a {type(function).__name__}"
                )
            found = self._remember(entry, function)
        return found

    def _remember(self, name: str, function: Callable[..., Any]) -> FoundFunction:
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        found = self._found[name] = FoundFunction(name, function)
        return found


def canonical_payload(payload: bytes) -> bytes:
    """Converts a payload in any of its forms to `{"args": […], "kwargs": {…}}`."""
    try:
        _call.decode(payload)
    except msgspec.ValidationError:
        given = msgspec.json.decode(payload)
    else:
        return payload
    if given is None:
        return b"{}"
    return msgspec.json.encode({"args": given} if isinstance(given, list) else {"kwargs": given})
