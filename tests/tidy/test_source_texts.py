"""The rules for source texts, held against every file of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.tidy import names, rules
from tests.tidy.rules import Finding
from tests.tidy.tree import SOURCE, python_files, shown, text_files

PRODUCT = ("src",)
CODE = ("src", "tests", "tools", "benchmarks")

TERMS = (
    *("leader election", "lease", "heartbeat", "prefetch", "spill", "fair share", "backfill"),
    *("preemption", "reservation", "token bucket", "rate limit", "misfire", "catch-up"),
    *("dispatcher", "priority queue", "topological", "connection pool", "RBAC", "projection"),
    *("idempotency", "dead letter", "supervisor", "deterministic simulation"),
    "exponential backoff",
)
"""Words by which a newcomer looks for a place; each opens a module or a class."""

LONG_FUNCTIONS: Mapping[str, str] = {}
"""`path: function` -> why it may be longer. May shrink, should not grow."""
LONG_FILES: Mapping[str, str] = {}
"""`path` -> why it may be longer."""


def broken(rule: Callable[[str], list[Finding]], files: list[Path]) -> list[str]:
    """Where a rule is broken, as lines a person can click on."""
    return [
        f"{shown(path)}:{finding.line}: {finding.message}"
        for path in files
        for finding in rule(path.read_text(encoding="utf-8"))
    ]


def nothing(found: list[str]) -> None:
    """Fails with one line for each thing found."""
    assert not found, "\n".join(["", *found])


def test_no_function_is_longer_than_the_limit() -> None:
    found = broken(rules.long_functions, python_files(*CODE))
    nothing([line for line in found if not _excused(line, LONG_FUNCTIONS)])


def test_no_file_is_longer_than_the_limit() -> None:
    found = broken(rules.long_file, python_files(*CODE))
    nothing([line for line in found if not _excused(line, LONG_FILES)])


def test_every_exception_is_still_needed() -> None:
    found = broken(rules.long_functions, python_files(*CODE))
    found += broken(rules.long_file, python_files(*CODE))
    excuses = [*LONG_FUNCTIONS, *LONG_FILES]
    nothing([one for one in excuses if not any(_excused(line, {one: ""}) for line in found)])


def test_the_core_has_no_sets() -> None:
    nothing(broken(rules.sets, python_files("src/rota/core")))


def test_every_module_opens_with_one_sentence() -> None:
    nothing(broken(rules.missing_opening, python_files(*PRODUCT)))


def test_no_module_or_class_has_a_vague_name() -> None:
    found = broken(rules.vague_classes, python_files(*PRODUCT))
    for path in python_files(*PRODUCT):
        found += [f"{shown(path)}: {f.message}" for f in rules.vague_path(path.relative_to(SOURCE))]
    nothing(found)


def test_no_name_is_a_private_word() -> None:
    found = broken(names.forbidden, python_files(*PRODUCT))
    for path in python_files(*PRODUCT):
        found += [
            f"{shown(path)}: {finding.message}"
            for finding in names.forbidden_in_path(path.relative_to(SOURCE))
        ]
    nothing(found)


def test_a_class_name_stands_for_one_thing() -> None:
    sources = {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
        for path in python_files("src/rota")
    }
    nothing(names.doubled_classes(sources))


def test_every_exception_to_the_names_is_still_needed() -> None:
    there = "\n".join(path.read_text(encoding="utf-8") for path in python_files(*PRODUCT))
    modules = [path.stem for path in python_files(*PRODUCT)]
    nothing([name for name in names.KEPT if name not in there and name not in modules])


def test_every_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = broken(rules.evasive_docstrings, python_files(*PRODUCT))
    nothing([line for line in found if not line.startswith(names.WORDED_LATER)])


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_field_leads_to_the_place_that_does_it(term: str) -> None:
    assert any(re.search(term, sentence, re.IGNORECASE) for sentence in _opening_sentences())


def test_no_test_mocks_our_own_code() -> None:
    nothing(broken(rules.mocks, python_files("tests")))


def test_tests_patch_the_outside_world_only() -> None:
    nothing(broken(rules.patches, python_files("tests")))


def test_no_file_puts_work_off_or_names_a_path_of_one_machine() -> None:
    found = [
        f"{shown(path)}:{finding.line}: {finding.message}"
        for path, text in text_files()
        for finding in (*rules.unfinished(text), *rules.machine_paths(text))
    ]
    nothing(found)


def test_every_limit_has_a_reason_and_is_held_to() -> None:
    files = sorted(SOURCE.glob("*/limits.py"))
    assert {"core", "wire"} <= {path.parent.name for path in files}
    read: dict[str, int] = {}
    for path in python_files(*PRODUCT):
        read |= rules.names_read(path.read_text(encoding="utf-8"))
    found = broken(rules.unreasoned_limits, files)
    found += broken(lambda source: rules.unused_limits(source, read), files)
    nothing(found)


@cache
def _opening_sentences() -> list[str]:
    """First sentences of all modules and classes, each on one line."""
    texts = [
        text
        for path in python_files(*PRODUCT)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef) and (text := ast.get_docstring(node))
    ]
    return [re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0] for text in texts]


def _excused(line: str, excuses: Mapping[str, str]) -> bool:
    path, _, rest = line.partition(":")
    function = rest.partition(": ")[2].partition(" ")[0]
    return path in excuses or f"{path}: {function}" in excuses
