"""What can be asked next: from each answer to the calls that take what it names.

An answer that has a `job_id` leads to every call with `{job_id}` in its path. So the document tells
programs how calls go together, and those that test by it walk the whole life of a thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec

from rota.api.routes import Operation

_PATH_PARAMETER = re.compile(r"{(\w+)}")
Link = dict[str, Any]


def links_from(source: Operation, operations: Sequence[Operation]) -> dict[str, Link]:
    """By the name of the call that each leads to.

    Only from what makes or changes things: all else was led to by one of those.
    """
    if not source.writes:
        return {}
    known, found = _known(source), {}
    for target in operations:
        names = _PATH_PARAMETER.findall(target.path)
        values = known if _collection(target) == _collection(source) else _without_name(known)
        if names and not target.streams_out and all(name in values for name in names):
            found[target.handle.__name__] = {
                "operationId": target.handle.__name__,
                "parameters": {name: values[name] for name in names},
            }
    return found


def _collection(operation: Operation) -> str:
    """What the path is about: a `name` means something else in each."""
    return operation.path.split("/")[1]


def _without_name(known: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in known.items() if name != "name"}


def _known(source: Operation) -> dict[str, str]:
    """The parameters that one knows after a call, and where from; the answer comes first."""
    known: dict[str, str] = {}
    for name, place in _answered(source.answer):
        known.setdefault(name, f"$response.body#{place}")
    for name in _PATH_PARAMETER.findall(source.path):
        known.setdefault(name, f"$request.path.{name}")
    return known


def _answered(answer: Any) -> Iterator[tuple[str, str]]:
    """(parameter, place) of what an answer names, of a list its first; what may be null is not."""
    for name, kind in _fields(answer).items():
        if kind is str and (name == "name" or name.endswith("_id")):
            yield name, f"/{name}"
        elif get_origin(kind) is list:
            [inner] = get_args(kind)
            if inner is str and name.endswith("_ids"):
                yield name.removesuffix("s"), f"/{name}/0"
            for one, place in _answered(inner):
                yield one, f"/{name}/0{place}"


def _fields(kind: Any) -> dict[str, Any]:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
