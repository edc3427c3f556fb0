"""Reads a filter's text into a small tree. It cannot name anything but the event it looks at.

expression  =  term  ( "or" term )*
term        =  factor ( "and" factor )*
factor      =  "not" factor | comparison
comparison  =  value [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | [ "not" ] "in" ) value ]
value       =  text | number | "true" | "false" | "null" | list | call | path
            |  "(" expression ")"
list        =  "[" [ value ( "," value )* ] "]"
call        =  name "(" value ( "," value )* ")"
path        =  name ( "." name | "[" ( number | text ) "]" )*
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from rota.core.errors import Invalid
from rota.core.limits import FILTER_CHARS_MAX, FILTER_DEPTH_MAX, FILTER_NODES_MAX

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
"""By name: how many arguments each takes."""
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
    """The base of what a filter is made of."""


class Literal(ExpressionNode, frozen=True):
    """A value that was written down."""

    value: Scalar


class Path(ExpressionNode, frozen=True):
    """A place in the event."""

    steps: tuple[str | int, ...]


class Named(ExpressionNode, frozen=True):
    """What an object's name stands for: a place in the data, else one in the event itself."""

    steps: tuple[str | int, ...]


class ListOf(ExpressionNode, frozen=True):
    """Values side by side."""

    items: tuple[AnyNode, ...]


class FunctionCall(ExpressionNode, frozen=True):
    """One of the FUNCTIONS."""

    name: str
    args: tuple[AnyNode, ...]


class Compare(ExpressionNode, frozen=True):
    """One of the COMPARISONS, or `in`."""

    sign: str
    left: AnyNode
    right: AnyNode


class Not(ExpressionNode, frozen=True):
    """The opposite."""

    inner: AnyNode


class AllOf(ExpressionNode, frozen=True):
    """All of them, looked at in order until one says no."""

    parts: tuple[AnyNode, ...]


class AnyOf(ExpressionNode, frozen=True):
    """Any of them, looked at in order until one says yes."""

    parts: tuple[AnyNode, ...]


AnyNode: TypeAlias = Literal | Path | Named | ListOf | FunctionCall | Compare | Not | AllOf | AnyOf


class ExpressionToken(msgspec.Struct, frozen=True):
    """A word or sign of the text, and where it begins (from 1, as people count)."""

    kind: str
    text: str
    place: int


def parse_filter(text: str) -> AnyNode:
    """The tree; raises Invalid that says what is wrong and where."""
    if len(text) > FILTER_CHARS_MAX:
        raise Invalid(f"longer than {FILTER_CHARS_MAX} characters", "filter")
    parser = _Parser(_tokens(text))
    tree = parser.expression()
    parser.expect_end()
    return tree


def parse_path(text: str) -> Path:
    """A path alone, such as `data.customer.id`."""
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
    found, place = [], 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            rest = text[place:].lstrip()
            raise _syntax_error(f"cannot read {rest[:20]!r}", len(text) - len(rest) + 1)
        found.append(
            ExpressionToken(
                match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1
            )
        )
        place = match.end()
    found.append(ExpressionToken("end", "", end + 1))
    return found


def _syntax_error(what: str, place: int) -> Invalid:
    return Invalid(f"{what}, at character {place}", "filter")


class _Parser:
    """Goes through the tokens once, from left to right."""

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
            raise _syntax_error(f"expected {text!r} and found {self._shown()}", self._token.place)
        self._next += 1

    def _shown(self) -> str:
        return repr(self._token.text[:40]) if self._token.kind != "end" else "the end"

    def expect_end(self) -> None:
        """Nothing may be left over."""
        if self._token.kind != "end":
            raise _syntax_error(f"{self._shown()} makes no sense here", self._token.place)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > FILTER_NODES_MAX:
            raise Invalid(f"more than {FILTER_NODES_MAX} parts", "filter")

    def expression(self) -> AnyNode:
        """Alternatives."""
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
        turned = False
        while self._is("not"):
            self._count()
            self._next += 1
            turned = not turned
        inner = self._comparison()
        return Not(inner) if turned else inner

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
        """The smallest whole."""
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
        raise _syntax_error(f"expected a value and found {self._shown()}", token.place)

    def _named(self, token: ExpressionToken) -> AnyNode:
        if token.text in CONSTANTS:
            return Literal(CONSTANTS[token.text])
        if token.text in KEYWORDS:
            raise _syntax_error(f"expected a value and found {token.text!r}", token.place)
        if self._is("("):
            return self._call(token)
        return self._path(token)

    def _call(self, token: ExpressionToken) -> AnyNode:
        if token.text not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise _syntax_error(
                f"there is no function {token.text!r}; there are {known}", token.place
            )
        self._next += 1
        args = self._values(")")
        if len(args) != FUNCTIONS[token.text]:
            wanted = FUNCTIONS[token.text]
            raise _syntax_error(f"{token.text}() takes {wanted} and got {len(args)}", token.place)
        if token.text == "has" and not isinstance(args[0], Path):
            raise _syntax_error("has() takes a path such as data.size", token.place)
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
        # `event.data` and `data` are the same: templates need the first, filters read better so.
        return Path(tuple(steps[1:] if steps[0] == "event" and len(steps) > 1 else steps))

    def _step(self, sign: str) -> str | int:
        token = self._take()
        if sign == ".":
            if token.kind != "name":
                raise _syntax_error("expected a name after the point", token.place)
            return token.text
        step: str | int
        if token.kind == "number" and token.text.isdigit():
            step = int(token.text)
        elif token.kind == "text":
            step = _unquoted(token)
        else:
            raise _syntax_error("expected a number or a name in quotes", token.place)
        self._expect("]")
        return step


def _unquoted(token: ExpressionToken) -> str:
    if token.text.startswith("'"):
        return token.text[1:-1]
    try:
        return msgspec.json.decode(token.text, type=str)
    except msgspec.DecodeError:
        raise _syntax_error(f"cannot read the text {token.text[:40]}", token.place) from None
