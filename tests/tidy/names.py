"""Names in the words of the field: forbidden words, and class names that stand for two things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.tidy.rules import Finding, parsed

FORBIDDEN = (
    *("agenda", "almanac", "band", "bands", "beat", "bell", "brain", "cargo", "chore"),
    *("clerk", "company", "crew", "customs", "deed", "desk", "diary", "dice", "doomed"),
    *("door", "doors", "doubt", "doubted", "ear", "fold", "folding", "folds", "guard"),
    *("guards", "heed", "heir", "heirs", "house", "keeper", "letter", "letters", "lobby"),
    *("mirror", "mood", "mouth", "nest", "nursery", "occasion", "occasions", "party"),
    *("payer", "pleas", "reign", "room", "rooms", "roster", "seat", "seats", "shelf"),
    *("shelve", "shelved", "shelves", "shelving", "sieve", "stranger", "strangers"),
    *("stumble", "teller", "trail", "unfolded", "visitor", "visitors", "ward", "weaver"),
    *("woven",),
)
"""Parts of a program have names that a reader can look up; these say nothing outside of it."""

PUBLIC = "public: a call, a command or a schema of the API"
WITH_PROJECTOR = "goes when the projector is a process of its own"
WITH_BULK_COMMAND = "goes when acts on many jobs are one command of the core"
WITH_TRANSPORT = "goes when worker and SDK share one transport"
WITH_RPC = "goes when API processes speak scheduler RPC"

KEPT: Mapping[str, str] = {
    "beat_worker": PUBLIC,
    **dict.fromkeys(("beat", "next_beat"), WITH_PROJECTOR),
    "_sieve": WITH_BULK_COMMAND,
    **dict.fromkeys(("DoorError", "MetricsDoor", "Line", "Lines"), WITH_TRANSPORT),
    **dict.fromkeys(("Brain", "Letter", "letters", "_room", "took_room"), WITH_RPC),
}
"""Name of a class, function or module -> why it keeps its word for now."""

WORDED_LATER = tuple(
    f"src/rota/{path}"
    for path in (
        *("api/auth/forwarded.py", "api/cluster/", "api/endpoints/bulk", "api/endpoints/members"),
        *("api/envelope.py", "api/letters.py", "api/recall.py", "sdk/lines/"),
    )
)
"""Modules that go when servers speak scheduler RPC and worker and SDK share one transport."""

UNIQUE_CLASSES = (
    *("Account", "Ahead", "Class", "Course", "Crew", "Desk", "Execution", "Feed", "Figures"),
    *("Gate", "Job", "Line", "Order", "Outcome", "Place", "Plan", "Queue", "Run", "Seat"),
    *("Shape", "Share", "Standing", "Trial", "Verdict", "Window"),
)
"""Of these there is one at most in the whole program."""


def words_of(name: str) -> list[str]:
    """The words that a name is made of; "dead letter" is a word of the field."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    return re.sub(r"\bdead letters?\b", "dead_letter", " ".join(words)).split()


def forbidden(source: str) -> list[Finding]:
    """Classes and functions that are named by a private word."""
    return [
        Finding(node.lineno, f"{node.name}: {word!r} is a private word, name it as the field does")
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in KEPT
        for word in words_of(node.name)
        if word in FORBIDDEN
    ]


def forbidden_in_path(path: Path) -> list[Finding]:
    """Modules and packages that are named by a private word."""
    parts = [part for part in path.with_suffix("").parts if part not in KEPT]
    words = [word for part in parts for word in words_of(part)]
    return [Finding(1, f"{word!r} is a private word") for word in words if word in FORBIDDEN]


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
        if name not in KEPT
        for number, one in enumerate(paths)
        for other in paths[number + 1 :]
        if name in UNIQUE_CLASSES or _meet(one, other, imports)
    ]


def _meet(one: str, other: str, imports: Mapping[str, Mapping[str, None]]) -> bool:
    a, b = (path.partition("/")[0] for path in (one, other))
    return a == b or a in imports[b] or b in imports[a]
