"""Expressions over events: parses a filter into a tree and evaluates it with bounded work.

expression  =  term  ( "or" term )*
term        =  factor ( "and" factor )*
factor      =  "not" factor | comparison
comparison  =  value [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | [ "not" ] "in" ) value ]
value       =  text | number | "true" | "false" | "null" | list | call | path
            |  "(" expression ")"
list        =  "[" [ value ( "," value )* ] "]"
call        =  name "(" value ( "," value )* ")"
path        =  name ( "." name | "[" ( number | text ) "]" )*

An expression can name nothing but the event that it is evaluated on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never

import msgspec

from rota.core.errors import Invalid
from rota.core.limits import (
    FILTER_CHARS_MAX,
    FILTER_DEPTH_MAX,
    FILTER_NODES_MAX,
    FILTER_STEPS_MAX,
    FILTER_TEXT_PER_STEP,
)

Scalar: TypeAlias = str | int | float | bool | None

FUNCTIONS = {
    "has": 1,
    "startswith": 2,
    "endswith": 2,
    "contains": 2,
    "matches": 2,
    "lower": 1,
    "len": 1,
}
"""Number of arguments of each function."""
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
KEYWORDS = ("and", "or", "not", "in", *CONSTANTS)

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'[^'\\\n]*')
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>==|!=|<=|>=|[<>()\[\],.])
    )""",
    re.VERBOSE | re.ASCII,
)


class ExpressionNode(msgspec.Struct, frozen=True, tag=True):
    """Node of an expression; the base class."""


class Literal(ExpressionNode, frozen=True):
    """Literal value."""

    value: Scalar


class Path(ExpressionNode, frozen=True):
    """Path to a place in the event."""

    steps: tuple[str | int, ...]


class Named(ExpressionNode, frozen=True):
    """Name in an object filter: a place in the event's data, else in the event itself."""

    steps: tuple[str | int, ...]


class ListOf(ExpressionNode, frozen=True):
    """List of values."""

    items: tuple[AnyNode, ...]


class FunctionCall(ExpressionNode, frozen=True):
    name: str
    args: tuple[AnyNode, ...]


class Compare(ExpressionNode, frozen=True):
    """Comparison by one of the COMPARISONS, or `in`."""

    sign: str
    left: AnyNode
    right: AnyNode


class Not(ExpressionNode, frozen=True):
    """Negation."""

    inner: AnyNode


class AllOf(ExpressionNode, frozen=True):
    """Conjunction, evaluated in order up to the first that is not true."""

    parts: tuple[AnyNode, ...]


class AnyOf(ExpressionNode, frozen=True):
    """Disjunction, evaluated in order up to the first that is true."""

    parts: tuple[AnyNode, ...]


AnyNode: TypeAlias = Literal | Path | Named | ListOf | FunctionCall | Compare | Not | AllOf | AnyOf


class ExpressionToken(msgspec.Struct, frozen=True):
    """Token of an expression, with its position, counted from 1."""

    kind: str
    text: str
    position: int


def parse_filter(text: str) -> AnyNode:
    """Parses a filter; raises Invalid with what is wrong and where."""
    if len(text) > FILTER_CHARS_MAX:
        raise Invalid(f"longer than {FILTER_CHARS_MAX} characters", "filter")
    parser = _Parser(_tokens(text))
    tree = parser.expression()
    parser.expect_end()
    return tree


def parse_path(text: str) -> Path:
    """Parses a path alone, such as `data.customer.id`."""
    if len(text) > FILTER_CHARS_MAX:
        raise Invalid(f"longer than {FILTER_CHARS_MAX} characters", "key")
    try:
        parser = _Parser(_tokens(text))
        node = parser.value()
        parser.expect_end()
    except Invalid as refusal:
        raise Invalid(refusal.detail, "key") from None
    if not isinstance(node, Path):
        raise Invalid(f"{text!r} is not a path into the event such as data.customer", "key")
    return node


def _tokens(text: str) -> list[ExpressionToken]:
    found, position = [], 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].lstrip()
            raise _syntax_error(f"cannot read {rest[:20]!r}", len(text) - len(rest) + 1)
        found.append(
            ExpressionToken(
                match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1
            )
        )
        position = match.end()
    found.append(ExpressionToken("end", "", end + 1))
    return found


def _syntax_error(what: str, position: int) -> Invalid:
    return Invalid(f"{what}, at character {position}", "filter")


class _Parser:
    """Recursive-descent parser over the tokens of one expression."""

    def __init__(self, tokens: list[ExpressionToken]) -> None:
        self._tokens = tokens
        self._next = 0
        self._nodes = 0
        self._depth = 0

    @property
    def _token(self) -> ExpressionToken:
        return self._tokens[self._next]

    def _is(self, *texts: str) -> bool:
        return self._token.kind in ("name", "sign") and self._token.text in texts

    def _take(self) -> ExpressionToken:
        token = self._token
        self._next += 1
        return token

    def _expect(self, text: str) -> None:
        if not self._is(text):
            raise _syntax_error(
                f"expected {text!r} and found {self._shown()}", self._token.position
            )
        self._next += 1

    def _shown(self) -> str:
        return repr(self._token.text[:40]) if self._token.kind != "end" else "the end"

    def expect_end(self) -> None:
        if self._token.kind != "end":
            raise _syntax_error(f"{self._shown()} is not expected here", self._token.position)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > FILTER_NODES_MAX:
            raise Invalid(f"more than {FILTER_NODES_MAX} parts", "filter")

    def expression(self) -> AnyNode:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            raise Invalid(f"nested deeper than {FILTER_DEPTH_MAX}", "filter")
        parts = [self._term()]
        while self._is("or"):
            self._next += 1
            parts.append(self._term())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _term(self) -> AnyNode:
        parts = [self._factor()]
        while self._is("and"):
            self._next += 1
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _factor(self) -> AnyNode:
        negated = False
        while self._is("not"):
            self._count()
            self._next += 1
            negated = not negated
        inner = self._comparison()
        return Not(inner) if negated else inner

    def _comparison(self) -> AnyNode:
        left = self.value()
        if self._is(*COMPARISONS):
            sign = self._take().text
            self._count()
            return Compare(sign, left, self.value())
        if self._is("in"):
            self._next += 1
            self._count()
            return Compare("in", left, self.value())
        if self._is("not"):
            self._next += 1
            self._expect("in")
            self._count()
            return Not(Compare("in", left, self.value()))
        return left

    def value(self) -> AnyNode:
        self._count()
        token = self._take()
        if token.kind == "number":
            plain = token.text.lstrip("-").isdigit()
            return Literal(int(token.text) if plain else float(token.text))
        if token.kind == "text":
            return Literal(_unquoted(token))
        if token.kind == "sign" and token.text == "(":
            inner = self.expression()
            self._expect(")")
            return inner
        if token.kind == "sign" and token.text == "[":
            return ListOf(self._values("]"))
        if token.kind == "name":
            return self._named(token)
        self._next -= 1
        raise _syntax_error(f"expected a value and found {self._shown()}", token.position)

    def _named(self, token: ExpressionToken) -> AnyNode:
        if token.text in CONSTANTS:
            return Literal(CONSTANTS[token.text])
        if token.text in KEYWORDS:
            raise _syntax_error(f"expected a value and found {token.text!r}", token.position)
        if self._is("("):
            return self._call(token)
        return self._path(token)

    def _call(self, token: ExpressionToken) -> AnyNode:
        if token.text not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise _syntax_error(
                f"there is no function {token.text!r}; there are {known}", token.position
            )
        self._next += 1
        args = self._values(")")
        if len(args) != FUNCTIONS[token.text]:
            wanted = FUNCTIONS[token.text]
            raise _syntax_error(
                f"{token.text}() takes {wanted} arguments and got {len(args)}", token.position
            )
        if token.text == "has" and not isinstance(args[0], Path):
            raise _syntax_error("has() takes a path such as data.size", token.position)
        return FunctionCall(token.text, args)

    def _values(self, end: str) -> tuple[AnyNode, ...]:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            raise Invalid(f"nested deeper than {FILTER_DEPTH_MAX}", "filter")
        found: list[AnyNode] = []
        while not self._is(end):
            if found:
                self._expect(",")
            found.append(self.value())
        self._next += 1
        self._depth -= 1
        return tuple(found)

    def _path(self, token: ExpressionToken) -> Path:
        steps: list[str | int] = [token.text]
        while self._is(".", "["):
            self._count()
            steps.append(self._step(self._take().text))
        # `event.data` and `data` are the same: templates need the first, filters read better with
        # the second.
        return Path(tuple(steps[1:] if steps[0] == "event" and len(steps) > 1 else steps))

    def _step(self, sign: str) -> str | int:
        token = self._take()
        if sign == ".":
            if token.kind != "name":
                raise _syntax_error("expected a name after the point", token.position)
            return token.text
        step: str | int
        if token.kind == "number" and token.text.isdigit():
            step = int(token.text)
        elif token.kind == "text":
            step = _unquoted(token)
        else:
            raise _syntax_error("expected a number or a name in quotes", token.position)
        self._expect("]")
        return step


def _unquoted(token: ExpressionToken) -> str:
    if token.text.startswith("'"):
        return token.text[1:-1]
    try:
        return msgspec.json.decode(token.text, type=str)
    except msgspec.DecodeError:
        raise _syntax_error(f"cannot read the text {token.text[:40]}", token.position) from None


MISSING: Any = msgspec.UNSET
"""Value of a path that leads nowhere; counts as null, except for `has`."""


class StepLimitError(Exception):
    """Filter that takes more steps than it may."""


def read_filter(given: bytes) -> AnyNode | None:
    """Parses a filter as given: an expression, or an object; None: every event passes."""
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
        "a filter is a text with an expression, or an object of values that must be equal", "filter"
    )


def _equal_parts(wanted: Mapping[str, Any], at: tuple[str | int, ...]) -> list[AnyNode]:
    """Comparisons that an object filter stands for."""
    parts: list[AnyNode] = []
    for name, value in wanted.items():
        position = (*at, *name.split("."))
        if len(position) > FILTER_NODES_MAX:
            raise Invalid("nested too deeply", "filter")
        if isinstance(value, dict):
            parts += _equal_parts(value, position)
        elif isinstance(value, list):
            if any(isinstance(one, dict | list) for one in value):
                raise Invalid(f"{name}: a list may hold only plain values", "filter")
            parts.append(
                Compare("in", Named(position), ListOf(tuple(Literal(one) for one in value)))
            )
        else:
            parts.append(Compare("==", Named(position), Literal(value)))
    return parts


def passes(tree: AnyNode | None, event: Mapping[str, Any]) -> bool:
    """Whether the event passes; raises StepLimitError."""
    return tree is None or _is_true(_Evaluation(event).value(tree))


def look_up(path: Path, event: Mapping[str, Any]) -> Any:
    """Value at a path of the event, or MISSING."""
    here: Any = event
    for step in path.steps:
        named = isinstance(step, str) and isinstance(here, Mapping) and step in here
        numbered = isinstance(step, int) and isinstance(here, list) and step < len(here)
        if not named and not numbered:
            return MISSING
        here = here[step]
    return here


def _look_up_name(name: Named, event: Mapping[str, Any]) -> Any:
    """Data comes first: a field of it named `source` or `data` must not be taken for the
    event's."""
    found = look_up(Path(("data", *name.steps)), event)
    return look_up(Path(name.steps), event) if found is MISSING else found


def _is_true(value: Any) -> bool:
    """Only `true` is true: a path alone asks whether it is set to true, not whether it exists."""
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
                return not _is_true(self.value(node.inner))
            case AllOf():
                return all(_is_true(self.value(part)) for part in node.parts)
            case AnyOf():
                return any(_is_true(self.value(part)) for part in node.parts)
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
        """Compares plain values of the same type; objects and lists are equal to nothing."""
        if isinstance(left, bool) or isinstance(right, bool):
            return left is right
        if isinstance(left, str) and isinstance(right, str):
            self._spend_text(left)
            return left == right
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left == right
        return left is None and right is None

    def _ordered(self, sign: str, left: Any, right: Any) -> bool:
        """Compares numbers with numbers and texts with texts; anything else is false."""
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
    """Whether the text matches the pattern, in which `*` stands for anything; takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    *middle, last = rest
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, position, max(position, end))
        if found < 0:
            return False
        position = found + len(piece)
    return position <= end and text.endswith(last)
