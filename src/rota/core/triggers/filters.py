"""Decides whether an event passes a filter: a walk over a small tree, with bounded work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from rota.core.errors import Invalid
from rota.core.limits import FILTER_NODES_MAX, FILTER_STEPS_MAX, FILTER_TEXT_PER_STEP
from rota.core.triggers.filter_text import (
    AllOf,
    AnyNode,
    AnyOf,
    Compare,
    FunctionCall,
    ListOf,
    Literal,
    Named,
    Not,
    Path,
    parse_filter,
)

MISSING: Any = msgspec.UNSET
"""What a path that leads nowhere comes to; it counts as null, except for `has`."""


class StepLimitError(Exception):
    """The filter would take more steps than it may."""


def read_filter(given: bytes) -> AnyNode | None:
    """The tree of a filter as it was given; None: everything passes."""
    if not given:
        return None
    value = msgspec.json.decode(given)
    if isinstance(value, str):
        return parse_filter(value)
    if isinstance(value, dict):
        parts = _equal_parts(value, ())
        if len(parts) > FILTER_NODES_MAX:
            raise Invalid(f"more than {FILTER_NODES_MAX} parts", "filter")
        return AllOf(tuple(parts))
    raise Invalid(
        "a filter is an expression in a text, or an object of what must be equal", "filter"
    )


def _equal_parts(wanted: Mapping[str, Any], at: tuple[str | int, ...]) -> list[AnyNode]:
    """An object stands for the places that must be as it says."""
    parts: list[AnyNode] = []
    for name, value in wanted.items():
        place = (*at, *name.split("."))
        if len(place) > FILTER_NODES_MAX:
            raise Invalid("nested too deeply", "filter")
        if isinstance(value, dict):
            parts += _equal_parts(value, place)
        elif isinstance(value, list):
            if any(isinstance(one, dict | list) for one in value):
                raise Invalid(f"{name}: a list holds the plain values it may be", "filter")
            parts.append(Compare("in", Named(place), ListOf(tuple(Literal(one) for one in value))))
        else:
            parts.append(Compare("==", Named(place), Literal(value)))
    return parts


def passes(tree: AnyNode | None, event: Mapping[str, Any]) -> bool:
    """Whether the event passes; raises TooLong."""
    return tree is None or _truth(_Evaluation(event).value(tree))


def look_up(path: Path, event: Mapping[str, Any]) -> Any:
    """What is at a place of the event, or MISSING."""
    here: Any = event
    for step in path.steps:
        named = isinstance(step, str) and isinstance(here, Mapping) and step in here
        numbered = isinstance(step, int) and isinstance(here, list) and step < len(here)
        if not named and not numbered:
            return MISSING
        here = here[step]
    return here


def _look_up_name(name: Named, event: Mapping[str, Any]) -> Any:
    """Data comes first: what it calls `source` or `data` itself is not taken for the event's."""
    found = look_up(Path(("data", *name.steps)), event)
    return look_up(Path(name.steps), event) if found is MISSING else found


def _truth(value: Any) -> bool:
    """Only true is true: a name alone asks whether it is set to that, not whether it is there."""
    return value is True


class _Evaluation:
    def __init__(self, event: Mapping[str, Any]) -> None:
        self._event = event
        self._steps_left = FILTER_STEPS_MAX

    def _spend(self, steps: int = 1) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise StepLimitError(f"it takes more than {FILTER_STEPS_MAX} steps")

    def value(self, node: AnyNode) -> Any:
        self._spend()
        match node:
            case Literal():
                return node.value
            case Path():
                self._spend(len(node.steps))
                found = look_up(node, self._event)
                return None if found is MISSING else found
            case Named():
                self._spend(2 * len(node.steps))
                found = _look_up_name(node, self._event)
                return None if found is MISSING else found
            case ListOf():
                return [self.value(item) for item in node.items]
            case Compare():
                return self._compare(node.sign, self.value(node.left), self.value(node.right))
            case Not():
                return not _truth(self.value(node.inner))
            case AllOf():
                return all(_truth(self.value(part)) for part in node.parts)
            case AnyOf():
                return any(_truth(self.value(part)) for part in node.parts)
            case FunctionCall():
                return self._call(node)
            case _:
                assert_never(node)

    def _compare(self, sign: str, left: Any, right: Any) -> bool:
        if sign == "in":
            if isinstance(right, str):
                return isinstance(left, str) and self._found(right, left)
            if isinstance(right, dict):
                return isinstance(left, str) and left in right
            return isinstance(right, list) and self._one_of(left, right)
        if sign == "==":
            return self._equal(left, right)
        if sign == "!=":
            return not self._equal(left, right)
        return self._ordered(sign, left, right)

    def _one_of(self, value: Any, items: list[Any]) -> bool:
        self._spend(len(items))
        return any(self._equal(value, item) for item in items)

    def _equal(self, left: Any, right: Any) -> bool:
        """Plain values of the same kind; objects and lists are equal to nothing."""
        if isinstance(left, bool) or isinstance(right, bool):
            return left is right
        if isinstance(left, str) and isinstance(right, str):
            self._spend_text(left)
            return left == right
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left == right
        return left is None and right is None

    def _ordered(self, sign: str, left: Any, right: Any) -> bool:
        """Numbers with numbers, texts with texts; anything else is never in order."""
        if isinstance(left, bool) or isinstance(right, bool):
            return False
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        texts = isinstance(left, str) and isinstance(right, str)
        if not numbers and not texts:
            return False
        if texts:
            self._spend_text(left)
        below: bool = left < right
        same: bool = left == right
        return {"<": below, "<=": below or same, ">": not below and not same, ">=": not below}[sign]

    def _spend_text(self, text: str) -> None:
        self._spend(len(text) // FILTER_TEXT_PER_STEP)

    def _found(self, text: str, part: str) -> bool:
        self._spend_text(text)
        return part in text

    def _call(self, node: FunctionCall) -> Any:
        if node.name == "has":
            assert isinstance(node.args[0], Path)
            return look_up(node.args[0], self._event) is not MISSING
        args = [self.value(arg) for arg in node.args]
        if node.name == "len":
            return len(args[0]) if isinstance(args[0], str | list | dict) else None
        if node.name == "contains":
            return self._compare("in", args[1], args[0])
        if not all(isinstance(arg, str) for arg in args):
            return None
        self._spend_text(args[0])
        match node.name:
            case "startswith":
                return args[0].startswith(args[1])
            case "endswith":
                return args[0].endswith(args[1])
            case "matches":
                return matches(args[1], args[0])
            case _:
                return args[0].lower()


def matches(pattern: str, text: str) -> bool:
    """Whether the text is like the pattern, in which `*` stands for anything; takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    *middle, last = rest
    place, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, place, max(place, end))
        if found < 0:
            return False
        place = found + len(piece)
    return place <= end and text.endswith(last)
