"""What the documents say is still true: generated ones are fresh, commands and files exist."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rota.core import lifecycle
from rota.core.model import ExecutionState, JobState
from tests.tidy.tree import ROOT, SOURCE, all_files, python_files, shown

MAKE_WORD = re.compile(r"(?:^|[`\s|])make ([a-z][a-z-]*)")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
INTO = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
PATH = re.compile(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:md|toml|py))`")
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
PROSE_OF_PATHS = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "STYLE.md",
    "docs/decisions",
    "docs/internals.md",
    "docs/performance.md",
    "docs/words.md",
    "changes",
)


def documents(*names: str) -> list[Path]:
    """The Markdown files with these paths or in these folders (none named: all of them)."""
    return [path for path in _markdown() if not names or shown(path).startswith(names)]


@cache
def _markdown() -> tuple[Path, ...]:
    """Looked for once: the lists of tests alone ask for it four times."""
    return tuple(path for path in all_files() if path.suffix == ".md")


def make_words(text: str) -> list[str]:
    """The doors that a text tells people to use; prose such as "make sure" is not in code marks."""
    marked = re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL)
    return [word for piece in marked for word in MAKE_WORD.findall(piece)]


def doors() -> list[str]:
    """The targets of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.findall(r"^([a-z][a-z-]*):", text, flags=re.MULTILINE)


def stale_paths(text: str) -> Iterator[str]:
    """Paths of ours that a text names and that are not there."""
    for name in PATH.findall(text):
        places = (ROOT / name, ROOT / "src" / name, SOURCE / name, ROOT / "docs" / name)
        if not any(place.exists() for place in places):
            yield name


def headings(page: Path) -> list[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found]


def test_the_lifecycle_page_is_drawn_from_the_tables() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "generate_lifecycle.py"))["render"]
    page = (ROOT / "docs" / "job-lifecycle.md").read_text(encoding="utf-8")
    assert page == render(), "stale: run `make docs`"


def test_the_dashboards_types_are_those_of_the_api() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "generate_types.py"))["render"]
    types = ROOT / "dashboard" / "src" / "api" / "schema.gen.ts"
    assert types.read_text(encoding="utf-8") == render(), "stale: run `make types`"


def test_every_state_and_verb_has_its_sentence() -> None:
    assert list(lifecycle.JOB_STATE_MEANING) == list(JobState)
    assert list(lifecycle.EXECUTION_STATE_MEANING) == list(ExecutionState)
    assert list(lifecycle.JOB_VERB_MEANING) == list(lifecycle.JobVerb)
    assert list(lifecycle.EXECUTION_VERB_MEANING) == list(lifecycle.ExecutionVerb)


@pytest.mark.parametrize("path", documents(), ids=shown)
def test_every_door_that_a_document_names_exists(path: Path) -> None:
    words = make_words(path.read_text(encoding="utf-8"))
    assert [word for word in words if word not in doors()] == []


def test_the_readme_names_the_doors_of_a_first_visit() -> None:
    words = make_words((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {"run", "test"} <= set(words)


def test_the_ci_script_uses_doors_that_exist() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    words = re.findall(r"\bmake ([a-z-]+)", script)
    assert "test" in words
    assert [word for word in words if word not in doors()] == []


def test_every_door_is_described() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = re.findall(r"^([a-z][a-z-]*):.*## \S", text, flags=re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (\S+)$", text, flags=re.MULTILINE)
    assert doors() == described == phony


@pytest.mark.parametrize("path", documents(), ids=shown)
def test_every_link_leads_somewhere(path: Path) -> None:
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", documents(), ids=shown)
def test_every_link_into_a_page_leads_to_a_heading(path: Path) -> None:
    links = INTO.findall(path.read_text(encoding="utf-8"))
    lost = [
        f"{page}#{place}"
        for page, place in links
        if place not in headings(path.parent / page if page else path)
    ]
    assert lost == []


@pytest.mark.parametrize("path", documents(*PROSE_OF_PATHS), ids=shown)
def test_every_file_that_prose_names_exists(path: Path) -> None:
    assert list(stale_paths(path.read_text(encoding="utf-8"))) == []


def test_every_document_that_code_names_exists() -> None:
    present = [path.name for path in documents()]
    missing = [
        f"{shown(path)}: {name}"
        for path in python_files("src", "tools", "benchmarks", "tests")
        for name in re.findall(r"\b[\w-]+\.md\b", path.read_text(encoding="utf-8"))
        if name not in present
    ]
    assert not missing, "\n".join(["", *missing])


@pytest.mark.parametrize("path", documents("docs/decisions/"), ids=shown)
def test_every_decision_has_its_three_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings == ["Context", "Choice", "Consequences"]
    assert text.startswith(f"# {path.name[:4]}: ")


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in documents("docs/decisions/")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_changelog_fragment_says_its_issue_and_kind() -> None:
    names = [path.name for path in documents("changes/") if path.name != "README.md"]
    pattern = re.compile(rf"\d+(\.[a-z0-9-]+)?\.({'|'.join(KINDS)})\.md")
    assert [name for name in names if not pattern.fullmatch(name)] == []


def test_a_door_or_file_that_is_missing_would_be_noticed() -> None:
    assert make_words("run `make dinner`, make sure;\n```\n$ make test\n```") == ["dinner", "test"]
    assert list(stale_paths("see `core/nowhere.py` and `core/model.py`")) == ["core/nowhere.py"]


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.split(r"[^\w-]", line)[0] for line in project["dependencies"]]
    page = next(iter(documents("docs/decisions/0007"))).read_text(encoding="utf-8")
    reasons = re.findall(r"^\| ([\w-]+) \|", page, flags=re.MULTILINE)[1:]
    assert sorted(reasons) == sorted(needed)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_page_names_the_pythons_that_the_package_names(page: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, tools = settings["project"], settings["tool"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    text = (ROOT / page).read_text(encoding="utf-8")
    (told,) = re.findall(r"Python (3\.\d+, [^A-Za-z]*(?:and|or) 3\.\d+)", text)
    assert re.findall(r"3\.\d+", told) == named
    oldest = (tools["mypy"]["python_version"], tools["ruff"]["target-version"])
    assert project["requires-python"] == f">={named[0]}"
    assert oldest == (named[0], f"py{named[0].replace('.', '')}")


def test_every_command_in_the_readme_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:sh|console|bash)?\n(.*?)```", readme, flags=re.DOTALL)
    words = re.findall(r"\brota ([a-z][a-z-]*)", "\n".join(blocks))
    run = subprocess.run(
        [sys.executable, "-m", "rota", "--help"], capture_output=True, text=True, check=True
    )
    assert words, "the README shows no command"
    known = re.findall(r"^  ([a-z][a-z-]*)  ", run.stdout, flags=re.MULTILINE)
    assert [word for word in words if word not in known] == []
