"""Names in the words of the field: forbidden words, and class names that stand for two things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.tidy.rules import Finding, parsed

METAPHORS = (
    *("room", "rooms", "door", "doors", "customs", "clerk", "desk", "letter", "letters", "diary"),
    *("crew", "lobby", "seat", "seats", "heir", "heirs", "party", "band", "bands", "shelf"),
    *(
        "shelve",
        "shelved",
        "shelving",
        "shelves",
        "visitor",
        "visitors",
        "dice",
        "doubt",
        "doubted",
    ),
    *("brain", "keeper", "fold", "folds", "folding", "unfolded", "reign", "chore", "beat", "pleas"),
    *("roster", "cargo", "sieve", "trail", "stranger", "strangers", "occasion", "occasions"),
    *("weaver", "woven", "nest", "nursery", "mouth", "ear", "ward", "deed", "teller", "mood"),
    *("guard", "guards", "bell", "payer", "company", "house", "doomed", "heed", "stumble"),
)
"""Parts of a program have names that a reader can look up; these say nothing outside of it."""

UNIQUE_CLASSES = (
    *("Job", "Execution", "Order", "Run", "Queue", "Line", "Plan", "Share", "Account", "Class"),
    *("Verdict", "Outcome", "Standing", "Course", "Trial", "Window", "Feed", "Desk", "Ahead"),
    *("Seat", "Crew", "Gate", "Figures", "Place", "Shape"),
)
"""Of these there is one at most in the whole program."""


def words_of(name: str) -> list[str]:
    """The words that a name is made of."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def metaphors(source: str) -> list[Finding]:
    """Classes and functions that are named by a private word."""
    return [
        Finding(node.lineno, f"{node.name}: {word!r} is a private word, name it as the field does")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for word in words_of(node.name)
        if word in METAPHORS
    ]


def metaphors_in_path(path: Path) -> list[Finding]:
    """Modules and packages that are named by a private word."""
    words = [word for part in path.with_suffix("").parts for word in words_of(part)]
    return [Finding(1, f"{word!r} is a private word") for word in words if word in METAPHORS]


def public_classes(source: str) -> list[str]:
    """The classes of a module's top level that others may use."""
    return [
        node.name
        for node in parsed(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def packages_imported(source: str) -> Iterator[str]:
    """The packages of `rota` that a module imports from."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rota."):
            yield (node.module or "").split(".")[1]


def doubled_classes(sources: Mapping[str, str]) -> list[str]:
    """Class names that a reader of a package meets with two meanings; `sources` by path in rota."""
    homes: dict[str, list[str]] = defaultdict(list)
    imports: dict[str, dict[str, None]] = defaultdict(dict)
    for path, source in sources.items():
        package = path.partition("/")[0]
        imports[package] |= dict.fromkeys(packages_imported(source))
        for name in public_classes(source):
            homes[name].append(path)
    return [
        f"{name}: {one} and {other}"
        for name, paths in homes.items()
        for number, one in enumerate(paths)
        for other in paths[number + 1 :]
        if name in UNIQUE_CLASSES or _meet(one, other, imports)
    ]


def _meet(one: str, other: str, imports: Mapping[str, Mapping[str, None]]) -> bool:
    a, b = (path.partition("/")[0] for path in (one, other))
    return a == b or a in imports[b] or b in imports[a]
