"""Every rule can fail: each is shown a text that breaks it, and one that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

import pytest

from tests.tidy import names, rules
from tests.tidy.rules import Finding

Rule = Callable[[str], list[Finding]]


def function_of(lines: int) -> str:
    """A function of that many lines of code, padded with prose that must not count."""
    prose = '    """Long.\n\n    Very.\n    """\n\n    # why\n'
    return "def f():\n" + prose + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (rules.long_functions, function_of(rules.FUNCTION_LINES_MAX + 1)),
        (rules.long_functions, "async " + function_of(rules.FUNCTION_LINES_MAX + 1)),
        (rules.long_file, "x = 1\n" * (rules.FILE_LINES_MAX + 1)),
        (rules.sets, "x = {1, 2}"),
        (rules.sets, "x = {y for y in z}"),
        (rules.sets, "x = set(y)"),
        (rules.sets, "x: frozenset[str]"),
        (rules.sets, "def f(x: typing.AbstractSet[str]) -> None: ..."),
        (rules.sets, "for key in a.keys() - b: ..."),
        (rules.missing_opening, "x = 1"),
        (rules.missing_opening, '""" """'),
        (rules.missing_opening, '"""A heading without an end"""'),
        (rules.missing_opening, '"""A heading without an end"""\n"""Then a sentence."""\n'),
        (rules.missing_opening, '"""A sentence, """ "and no docstring.".strip()\nx = 1\n'),
        (rules.missing_opening, f'"""{"word " * rules.OPENING_CHARS_MAX}."""'),
        (rules.evasive_docstrings, 'def f():\n    """What is left."""'),
        (rules.evasive_docstrings, '"""The same for two."""'),
        (names.forbidden, "class ShelfReader: ..."),
        (names.forbidden, "def open_the_door(): ..."),
        (rules.vague_classes, "class JobManager: ..."),
        (rules.mocks, "from unittest.mock import Mock"),
        (rules.mocks, "import unittest.mock"),
        (rules.patches, "monkeypatch.setattr('rota.store.limits.TOKENS_MAX', 2)"),
        (rules.patches, "patched.setattr(f'rota.{module}.TOKENS_MAX', 2)"),
        (rules.patches, "from rota.store import limits\nmonkeypatch.setattr(limits, 'A', 2)"),
        (rules.patches, "import rota.sdk\nmonkeypatch.setattr(rota.sdk.Client, 'get', get)"),
        (rules.patches, "def f(store): monkeypatch.setattr(store.ledger, '_append', slowly)"),
        (rules.patches, "from rota import sdk\nx = sdk.Client()\npatch.setattr(x, 'get', get)"),
        (rules.patches, "from rota.store import limits\nsetattr(limits, 'TOKENS_MAX', 2)"),
        (rules.patches, "from rota import parts\nobject.__setattr__(parts.one, 'limits', 2)"),
        (rules.unfinished, "x = 1  # TO" + "DO: more"),
        (rules.unfinished, "FIX" + "ME"),
        (rules.machine_paths, "cd /wo" + "rk/main"),
        (rules.machine_paths, "from py" + "pi.org"),
        (rules.unreasoned_limits, "JOBS_MAX = 10\nLABELS_MAX = 3\n'''Few.'''"),
        (rules.unreasoned_limits, "JOBS_MAX: Final = 10"),
    ],
)
def test_a_text_that_breaks_a_rule_is_found(rule: Rule, bad: str) -> None:
    assert rule(bad)


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (rules.long_functions, function_of(rules.FUNCTION_LINES_MAX)),
        (rules.long_file, "x = 1\n" * rules.FILE_LINES_MAX),
        (rules.sets, "x = {}; y = {1: 2}; z = {a: b for a in c}; self.setting = timers.set(1)"),
        (rules.sets, "flags = a | b; rest = total - used"),
        (rules.missing_opening, '"""DECIDES: the pure scheduler. Imports nothing."""'),
        (rules.missing_opening, '"""A sentence."""\n\nx = 1\n'),
        (rules.missing_opening, '"""One sentence\nover two lines.\n\nThen a heading"""'),
        (rules.evasive_docstrings, '"""Items that are left."""'),
        (names.forbidden, "class SpillReader: ..."),
        (rules.vague_classes, "class Scheduler: ..."),
        (rules.mocks, "import pytest"),
        (rules.patches, "monkeypatch.setattr('sys.stdin', None)"),
        (rules.patches, "import sys\nmonkeypatch.setattr(sys, 'platform', 'darwin')"),
        (rules.patches, "import io\nx = io.StringIO()\nmonkeypatch.setattr(x, 'isatty', yes)"),
        (rules.patches, "def f(self): setattr(self, name, value)"),
        (rules.unfinished, "a todolist of methods"),
        (rules.machine_paths, "f'{data}/" + "work/{name}' and GET /workers"),
        (rules.unreasoned_limits, "JOBS_MAX = 10\n'''A page of them.'''\n_x = 1"),
    ],
)
def test_a_text_that_keeps_a_rule_is_left_alone(rule: Rule, good: str) -> None:
    assert rule(good) == []


@pytest.mark.parametrize("path", ["rota/api/utils.py", "rota/common/jobs.py", "job_manager.py"])
def test_a_module_name_that_says_nothing_is_found(path: str) -> None:
    assert rules.vague_path(PurePath(path))


@pytest.mark.parametrize("path", ["rota/core/model.py", "rota/store/database.py"])
def test_a_module_name_that_says_something_is_left_alone(path: str) -> None:
    assert rules.vague_path(PurePath(path)) == []


def test_a_limit_that_is_only_imported_counts_as_unused() -> None:
    source = "A_MAX = 1\nB_MAX = 2\nC_MAX = 3"
    read = rules.names_read("from x import A_MAX, B_MAX\nprint(B_MAX, limits.C_MAX)")
    assert [finding.line for finding in rules.unused_limits(source, read)] == [1]


def test_a_class_name_that_stands_for_two_things_is_found() -> None:
    sources = {"core/a.py": "class Worker: ...", "core/b.py": "class Worker: ..."}
    assert names.doubled_classes(sources) == ["Worker: core/a.py and core/b.py"]
    apart = {"core/a.py": "class Worker: ...", "worker/b.py": "class Worker: ..."}
    assert names.doubled_classes(apart) == []
    known = {**apart, "worker/c.py": "from rota.core.a import Worker"}
    assert names.doubled_classes(known) != []
