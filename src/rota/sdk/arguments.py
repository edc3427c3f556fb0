"""Arguments, results and errors of functions as JSON: encodes them, and decodes them to the types
that a function's annotations declare.

A payload is `{"args": […], "kwargs": {…}}`. Dataclasses, msgspec records, dates, UUIDs, enums and
decimals are written as JSON and converted back to the type of the parameter's annotation.
"""

from __future__ import annotations

import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, get_type_hints

import msgspec

from rota.sdk.context import Context
from rota.sdk.job_exceptions import Retry

FRAMES_MAX = 40
"""Frames of a traceback: the innermost ones say most."""
TRACEBACK_CHARS_MAX = 16_000
"""Length of a traceback: people read the record."""
ERROR_MESSAGE_CHARS_MAX = 4_000
"""Length of an error's own message."""


class ArgumentError(TypeError):
    """The arguments do not fit the function, or a value cannot be written as JSON."""


def document(what: str, value: Any) -> bytes:
    """Encodes a value as JSON; raises ArgumentError, which names `what` and the reason.

    Two steps, because msgspec alone would silently write NaN as null.
    """
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_to_builtins)
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except RecursionError as error:
        raise ArgumentError(f"{what} cannot be written as JSON: it is nested too deeply") from error
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} cannot be written as JSON: {error}") from error


def _to_builtins(value: Any) -> Any:
    """Converts types that msgspec does not know: subclasses of plain types, and
    pydantic's models.
    """
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"there is no JSON for a value of type {type_name(type(value))}")


def type_name(kind: type[Any]) -> str:
    """Name of a type as one would import it; built-in types have no module."""
    name = kind.__qualname__
    return name if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{name}"


def error_record(error: BaseException) -> dict[str, Any]:
    """Record of an exception: type, message and traceback, without the values of variables."""
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES_MAX)
    record: dict[str, Any] = {
        "type": type_name(type(error)),
        "message": _valid_unicode(str(error))[:ERROR_MESSAGE_CHARS_MAX],
        "traceback": _valid_unicode("".join(lines))[-TRACEBACK_CHARS_MAX:],
    }
    if isinstance(error, Retry) and error.delay is not None:
        record["delay"] = error.delay
    return record


def _valid_unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


CONTEXT_NAME = "ctx"
"""A first parameter of this name gets the context, whatever its annotation."""


class Payload(msgspec.Struct):
    """Arguments of a call, as they are sent."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def encode_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Encodes the payload of a call; raises ArgumentError for a value without a form in JSON."""
    return document(f"the arguments of {name}", Payload(list(args), dict(kwargs)))


class FunctionSignature:
    """Signature of a function, with parameters and result by their annotations; read when first
    needed.

    Not at decoration, because annotations may name what the module defines further down.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self.wants_context = wants_context(function)
        self._read: tuple[inspect.Signature, dict[str, Any]] | None = None

    def check(self) -> None:
        """Raises TypeError if a parameter for the context is not the first one."""
        for parameter in list(signature_of(self._function).parameters.values())[1:]:
            if is_for_context(parameter):
                raise TypeError(f"{self.name}: {parameter.name} must be the first parameter")

    def decode(self, payload: bytes, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Decodes the arguments to call the function with; raises ArgumentError if they
        do not fit.
        """
        try:
            given = msgspec.json.decode(payload, type=Payload)
        except msgspec.MsgspecError as error:
            text = f'the payload of {self.name} is not {{"args": […], "kwargs": {{…}}}}: {error}'
            raise ArgumentError(text) from error
        signature, _ = self._signature()
        if not (given.args or given.kwargs) and self._takes_nothing:
            return ([context] if self.wants_context else []), {}
        bound = self.bind(given.args, given.kwargs)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            bound.arguments[name] = self._convert(name, kind, value)
        args = list(bound.args)
        return ([context, *args] if self.wants_context else args), dict(bound.kwargs)

    @cached_property
    def _takes_nothing(self) -> bool:
        """Whether the function can be called without arguments."""
        signature, _ = self._signature()
        return all(_is_optional(one) for one in signature.parameters.values())

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Binds arguments to parameters; raises ArgumentError where a call would raise
        TypeError.
        """
        signature, _ = self._signature()
        try:
            return signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{signature}: {error}") from error

    def split(
        self, given: Mapping[str, Any], options: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Separates the function's own keywords from options; a name that is both belongs to the
        function.
        """
        signature, _ = self._signature()
        options_given = {
            name: value
            for name, value in given.items()
            if name in options and name not in signature.parameters
        }
        return {k: v for k, v in given.items() if k not in options_given}, options_given

    def result(self, value: Any) -> Any:
        """Converts a result from JSON to the type of the function's annotation."""
        _, hints = self._signature()
        wanted = hints.get("return", Any)
        return _convert(f"the result of {self.name}", value, wanted)

    def _convert(self, name: str, kind: Any, value: Any) -> Any:
        _, hints = self._signature()
        wanted = hints.get(name, Any)
        if kind is inspect.Parameter.VAR_POSITIONAL:
            wanted = tuple[wanted, ...]  # type: ignore[valid-type]  # a type made at run time
        elif kind is inspect.Parameter.VAR_KEYWORD:
            wanted = dict[str, wanted]  # type: ignore[valid-type]
        return _convert(f"{self.name}: argument {name}", value, wanted)

    def _signature(self) -> tuple[inspect.Signature, dict[str, Any]]:
        """The signature without the context, and the resolved annotations."""
        if self._read is None:
            signature = signature_of(self._function)
            kept = list(signature.parameters.values())[1 if self.wants_context else 0 :]
            self._read = signature.replace(parameters=kept), _hints(self._function)
        return self._read


def _is_optional(parameter: inspect.Parameter) -> bool:
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.kind in rest or parameter.default is not inspect.Parameter.empty


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, AttributeError, TypeError):
        # A name that exists for type checkers only: the values then stay as decoded from JSON.
        return {}


def _convert(what: str, value: Any, wanted: Any) -> Any:
    validate = getattr(wanted, "model_validate", None)
    if callable(validate):
        return validate(value)  # a pydantic model
    try:
        return msgspec.convert(value, wanted, strict=True, str_keys=True)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{what}: {error}") from error
    except TypeError:
        # A type that msgspec cannot build from JSON, such as a class of the user's own.
        return value


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Signature of a function, whose annotations may name what is not defined yet."""
    if sys.version_info >= (3, 14):  # where annotations are evaluated when they are read
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is for the context, by its name or its annotation."""
    parameters = list(signature_of(function).parameters.values())
    return bool(parameters) and is_for_context(parameters[0])


def is_for_context(parameter: inspect.Parameter) -> bool:
    """Whether only a worker can fill this parameter."""
    return parameter.name == CONTEXT_NAME or _is_context(parameter.annotation)


def _is_context(annotation: Any) -> bool:
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(annotation, str):
        return annotation.removeprefix("rota.").removeprefix("sdk.") == Context.__name__
    return annotation is Context
