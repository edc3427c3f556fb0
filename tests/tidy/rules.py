"""Rules for source texts: each takes a text and answers what is wrong in it, by line.

Pure, so that `test_rules.py` can show each of them a text that must fail.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import PurePath
from typing import NamedTuple

FUNCTION_LINES_MAX = 40
FILE_LINES_MAX = 800
OPENING_CHARS_MAX = 200
QUOTES = '"""'

VAGUE_WORDS = (
    *("util", "utils", "helper", "helpers", "common", "misc"),
    *("manager", "managers"),
)
VAGUE_CLASS_ENDINGS = ("Manager", "Handler", "Helper", "Helpers", "Util", "Utils")

EVASIVE = re.compile(r"(?:What|Who|Whoever|Whom|Whose|Those|It|The same)\b")

OUR_PACKAGES = ("rota", "tests", "tools", "benchmarks")

SET_BUILTINS = ("set", "frozenset")
SET_TYPES = ("Set", "FrozenSet", "AbstractSet", "MutableSet")
SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)

# One letter of each is in brackets, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK)\b")
MACHINE = re.compile(
    r"(?<![\w.}/-])/(?:[w]ork|[r]oot|[o]pt/(?:pypi|wheels))\b|[p]ypi\.org|[p]ythonhosted\.org"
)


class Finding(NamedTuple):
    """One thing that is wrong, and where."""

    line: int
    message: str


@cache
def long_functions(source: str) -> list[Finding]:
    """Functions of more lines of code than one screen holds."""
    # Telling code from the rest is slow, and few functions are so long with all their lines.
    suspects = [node for node in _functions(source) if len(_lines(node)) > FUNCTION_LINES_MAX]
    code = _code_lines(source) if suspects else {}
    return [
        Finding(
            node.lineno, f"{node.name} has {length} lines of code, {FUNCTION_LINES_MAX} at most"
        )
        for node in suspects
        if (length := _length(node, code)) > FUNCTION_LINES_MAX
    ]


def long_file(source: str) -> list[Finding]:
    """Files of more lines than one subject needs."""
    count = len(source.splitlines())
    if count <= FILE_LINES_MAX:
        return []
    return [Finding(count, f"{count} lines, {FILE_LINES_MAX} at most")]


def sets(source: str) -> list[Finding]:
    """Anything that could be iterated in the order of a hash."""
    return [
        Finding(node.lineno, f"{what}: sets iterate in hash order, use a dict or a tuple")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.expr) and (what := _set_in(node))
    ]


def missing_opening(source: str) -> list[Finding]:
    """A module that does not open with one sentence saying its duty."""
    docstring = ast.get_docstring(ast.parse(_opening(source))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    if not paragraph:
        return [Finding(1, "no docstring: say in one sentence what this module is for")]
    if not paragraph.endswith((".", "!", "?")):
        return [Finding(1, f"the docstring's opening is not a sentence: {paragraph!r}")]
    sentence = re.split(r"(?<=[.!?])\s", paragraph)[0]
    if len(sentence) > OPENING_CHARS_MAX:
        return [Finding(1, f"the opening sentence is too long: {len(sentence)} characters")]
    return []


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring of modules, classes and functions."""
    for node in ast.walk(parsed(source)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def evasive_docstrings(source: str) -> list[Finding]:
    """Docstrings that begin with a pronoun: they name neither what a thing does nor what it is."""
    return [
        Finding(line, f"begin with a verb or a noun, not with {found[0]!r}")
        for line, text in docstrings(source)
        if (found := EVASIVE.match(text))
    ]


def vague_path(path: PurePath) -> list[Finding]:
    """A module or package whose name says nothing."""
    words = [word for part in path.with_suffix("").parts for word in part.lower().split("_")]
    return [Finding(1, f"{word!r} says nothing: name the duty") for word in words if _vague(word)]


def vague_classes(source: str) -> list[Finding]:
    """Classes named after nothing one could say in an incident."""
    if not any(ending in source for ending in VAGUE_CLASS_ENDINGS):
        return []  # most files, and to take one apart takes long
    return [
        Finding(node.lineno, f"{node.name}: name the noun, not the pattern")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_CLASS_ENDINGS)
    ]


def mocks(source: str) -> list[Finding]:
    """Mocks of our own code: pure rooms need none, the others take the shipped fakes."""
    if "unittest" not in source:
        return []
    return [
        Finding(node.lineno, "no mocks: use the in-memory store or the in-process transport")
        for node in ast.walk(parsed(source))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest"))
        or (isinstance(node, ast.Import) and any(n.name.startswith("unittest") for n in node.names))
    ]


def patches(source: str) -> list[Finding]:
    """Anything set by a test that is not the outside world's.

    `monkeypatch.setattr` must name what is imported from elsewhere, the builtin must not name
    what is imported from here: a limit is handed in, a part has a stand-in.
    """
    if "setattr" not in source:
        return []
    ours = _imported(source)
    return [
        Finding(node.lineno, "hand in a limit or a stand-in: only the outside world is patched")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and node.args and _is_patch(node, ours)
    ]


def unfinished(text: str) -> list[Finding]:
    """Words by which people put work off."""
    return _matches(UNFINISHED, text, "finish it, or write an issue")


def machine_paths(text: str) -> list[Finding]:
    """Places that exist only on somebody's machine."""
    return _matches(MACHINE, text, "the next reader does not have this")


def unreasoned_limits(source: str) -> list[Finding]:
    """Limits without a sentence under them that gives the reason."""
    body = parsed(source).body
    following: list[ast.stmt | None] = [*body[1:], None]
    return [
        Finding(statement.lineno, f"{name}: say why below it")
        for statement, after in zip(body, following, strict=True)
        for name in _constants(statement)
        if after is None or not _is_text(after)
    ]


def limits(source: str) -> dict[str, int]:
    """The named limits of a module, and their lines."""
    return {
        name: statement.lineno
        for statement in parsed(source).body
        for name in _constants(statement)
    }


def names_read(source: str) -> dict[str, int]:
    """Every name that the code reads (importing alone is not reading), and how often."""
    counts: dict[str, int] = {}
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            counts[node.id] = counts.get(node.id, 0) + 1
        elif isinstance(node, ast.Attribute):
            counts[node.attr] = counts.get(node.attr, 0) + 1
    return counts


def unused_limits(source: str, read: Mapping[str, int]) -> list[Finding]:
    """Limits that nothing holds to."""
    return [
        Finding(line, f"{name} limits nothing: use it or remove it")
        for name, line in limits(source).items()
        if name not in read
    ]


def _imported(source: str) -> dict[str, bool]:
    """Names that come of imports, and whether they are of this house."""
    ours: dict[str, bool] = {}
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            for one in node.names:
                ours[one.asname or one.name.partition(".")[0]] = _is_ours(one.name)
        elif isinstance(node, ast.ImportFrom):
            ours |= {one.asname or one.name: _is_ours(node.module or "") for one in node.names}
    made = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Assign)]
    for node in made:
        root = _root(node.value)
        if root in ours:
            targets = (target for target in node.targets if isinstance(target, ast.Name))
            ours |= {target.id: ours.get(target.id, False) or ours[root] for target in targets}
    return ours


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OUR_PACKAGES


def _root(node: ast.expr) -> str:
    """The name at which `name.attribute(...).attribute` begins."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=inner) | ast.Call(func=inner):
                node = inner
            case _:
                return ""
    return node.id


def _is_patch(call: ast.Call, ours: Mapping[str, bool]) -> bool:
    target = call.args[0]
    match call.func:
        case ast.Name("setattr") | ast.Attribute(attr="__setattr__"):
            return ours.get(_root(target), False)
        case ast.Attribute(attr="setattr"):
            return not _is_outside(target, ours)
        case _:
            return False


def _is_outside(target: ast.expr, ours: Mapping[str, bool]) -> bool:
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return not _is_ours(target.value)
    return not ours.get(_root(target), True)


def _opening(source: str) -> str:
    """The lines to where the first text ends: what comes after it is no part of a docstring."""
    end = source.find("\n", source.find(QUOTES, len(QUOTES)))
    return source[:end] if source.startswith(QUOTES) and end > 0 else source


# Only the last: with the trees of all files kept, every round of the garbage collector looks at a
# million nodes, in this test and in all that come after it.
@lru_cache(maxsize=1)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    waiting: deque[ast.AST] = deque([parsed(source)])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        # No expression has a function with a name in it, and most of a tree is expressions.
        children = ast.iter_child_nodes(node)
        waiting.extend(child for child in children if not isinstance(child, ast.expr))


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef, code: Mapping[int, bool]) -> int:
    prose = {
        line: True
        for node in ast.walk(function)
        if isinstance(node, ast.stmt) and _is_text(node)
        for line in _lines(node)
    }
    return sum(1 for line in _lines(function) if line in code and line not in prose)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _code_lines(source: str) -> dict[int, bool]:
    layout = (
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
        *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
    )
    return {
        line: True
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in layout
        for line in range(token.start[0], token.end[0] + 1)
    }


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _set_in(node: ast.expr) -> str:
    match node:
        case ast.Set() | ast.SetComp():
            return "a set"
        case ast.Name(id=name) if name in SET_BUILTINS + SET_TYPES:
            return name
        case ast.Attribute(attr=name) if name in SET_TYPES:
            return name
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, SET_OPERATORS):
            return "arithmetic on keys" if _is_view(left) or _is_view(right) else ""
        case _:
            return ""


def _is_view(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("keys", "items")
    )


def _vague(word: str) -> bool:
    return word in VAGUE_WORDS


def _matches(pattern: re.Pattern[str], text: str, advice: str) -> list[Finding]:
    return [
        Finding(number, f"{match.group()!r}: {advice}")
        for number, line in enumerate(text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def _targets(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _constants(statement: ast.stmt) -> list[str]:
    return [name for name in _targets(statement) if name.isupper() and not name.startswith("_")]
