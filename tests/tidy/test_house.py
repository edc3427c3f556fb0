"""The rules of this house, held against every file of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.tidy import rules
from tests.tidy.rules import Finding
from tests.tidy.tree import SOURCE, python_files, shown, text_files

PRODUCT = ("src",)
CODE = ("src", "tests", "tools", "benchmarks")

LONG_FUNCTIONS: Mapping[str, str] = {}
"""`path: function` -> why it may be longer than a screen. May shrink, should not grow."""
LONG_FILES: Mapping[str, str] = {}
"""`path` -> why it may be longer than one thought."""


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


def test_every_function_fits_on_a_screen() -> None:
    found = broken(rules.long_functions, python_files(*CODE))
    nothing([line for line in found if not _excused(line, LONG_FUNCTIONS)])


def test_every_file_is_one_thought() -> None:
    found = broken(rules.long_file, python_files(*CODE))
    nothing([line for line in found if not _excused(line, LONG_FILES)])


def test_every_exception_is_still_needed() -> None:
    found = broken(rules.long_functions, python_files(*CODE))
    found += broken(rules.long_file, python_files(*CODE))
    excuses = [*LONG_FUNCTIONS, *LONG_FILES]
    nothing([one for one in excuses if not any(_excused(line, {one: ""}) for line in found)])


def test_the_core_has_no_sets() -> None:
    nothing(broken(rules.sets, python_files("src/rota/core")))


def test_every_module_opens_with_its_duty() -> None:
    nothing(broken(rules.missing_opening, python_files(*PRODUCT)))


def test_every_name_says_something() -> None:
    found = broken(rules.vague_classes, python_files(*PRODUCT))
    for path in python_files(*PRODUCT):
        found += [f"{shown(path)}: {f.message}" for f in rules.vague_path(path.relative_to(SOURCE))]
    nothing(found)


def test_no_test_mocks_our_own_code() -> None:
    nothing(broken(rules.mocks, python_files("tests")))


def test_tests_patch_the_outside_world_only() -> None:
    nothing(broken(rules.patches, python_files("tests")))


def test_nothing_is_put_off_and_nothing_points_at_one_machine() -> None:
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


def _excused(line: str, excuses: Mapping[str, str]) -> bool:
    path, _, rest = line.partition(":")
    function = rest.partition(": ")[2].partition(" ")[0]
    return path in excuses or f"{path}: {function}" in excuses
