"""The reference pages name everything that the code has, and nothing that it has not."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rota.sdk import AsyncClient, Client
from tests.cli.shown_commands import taken
from tests.tidy.tree import ROOT, SOURCE, all_files, python_files, shown

DOCS = ROOT / "docs"
BLOCK = re.compile(r"```(?:sh|console|bash)?\n(.*?)```", re.DOTALL)
ENDS_A_COMMAND = ("|", "&&", ">", ";")
MISTAKES = ("No such option", "No such command", "there is no command", "unexpected extra arg")
RUN = re.compile(r"(?<!from )\brota ([a-z][a-z-]*)(?= |`|$|\n)")


def page(name: str) -> str:
    """The text of one document."""
    return (DOCS / name).read_text(encoding="utf-8")


def code(name: str) -> str:
    """The text of one module."""
    return (SOURCE / name).read_text(encoding="utf-8")


def ticked(text: str) -> list[str]:
    """What stands in code marks in a page, once each."""
    return list(dict.fromkeys(re.findall(r"`([^`\n]+)`", text)))


def command_lines(text: str) -> Iterator[str]:
    """What a text says one can type, as far as `rota` reads it."""
    inline = re.findall(r"`(rota [^`\n]+)`", BLOCK.sub("", text))
    blocks = "\n".join(BLOCK.findall(text)).replace("\\\n", " ")
    for line in (*inline, *re.findall(r"^(?:\$ )?(rota .*)$", blocks, re.MULTILINE)):
        words = shlex.split(line.replace("…", ""), comments=True)
        end = next((n for n, word in enumerate(words) if word in ENDS_A_COMMAND), len(words))
        if "COMMAND" not in words:
            yield shlex.join(words[:end])


def help_of(*words: str) -> str:
    """What a command says of itself."""
    run = subprocess.run(
        [sys.executable, "-m", "rota", *words, "--help"], capture_output=True, text=True, check=True
    )
    return run.stdout


@cache
def commands() -> list[str]:
    """Every word of the command line."""
    return re.findall(r"^  ([a-z][a-z-]*)  ", help_of(), flags=re.MULTILINE)


def test_the_page_of_limits_is_written_from_the_modules() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "generate_limits.py"))["render"]
    assert page("reference/limits.md") == render(), "stale: run tools/generate_limits.py"


def test_every_room_with_limits_is_on_the_page() -> None:
    rooms = runpy.run_path(str(ROOT / "tools" / "generate_limits.py"))["PACKAGES"]
    assert sorted(rooms) == sorted(path.parent.name for path in SOURCE.glob("*/limits.py"))


def test_the_command_line_page_has_every_command() -> None:
    listed = re.findall(r"^\| `rota ([a-z-]+)` \|", page("guide/command-line.md"), re.MULTILINE)
    assert sorted(listed) == sorted(commands())


@pytest.mark.parametrize(
    "path",
    [path for path in all_files() if DOCS in path.parents and path.suffix == ".md"],
    ids=shown,
)
def test_every_command_that_a_document_shows_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    marked = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL))
    known = commands()
    assert [word for word in RUN.findall(marked) if word not in known] == []


@pytest.mark.parametrize("path", [path for path in all_files() if path.suffix == ".md"], ids=shown)
def test_every_option_that_a_document_shows_exists(path: Path) -> None:
    told = [taken(line) for line in command_lines(path.read_text(encoding="utf-8"))]
    assert [one for one in told if one and any(said in one for said in MISTAKES)] == []


def test_an_option_that_does_not_exist_would_be_noticed() -> None:
    text = "`rota jobs --al`\n```sh\n$ rota submit --wiat \\\n  -- true | cat  # now\n```"
    lines = list(command_lines(text))
    assert lines == ["rota jobs --al", "rota submit --wiat -- true"]
    assert all("No such option" in (taken(line) or "") for line in lines)


def test_every_line_of_the_log_that_is_explained_can_come() -> None:
    (table,) = re.findall(
        r"## The server's log\n(.*?)\n## ", page("operating/running.md"), re.DOTALL
    )
    lines = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    assert "reloading" in lines
    program = "".join(path.read_text(encoding="utf-8") for path in python_files("src"))
    assert [line for line in lines if f'"{line}' not in program] == []


@pytest.mark.parametrize("command", ["up", "server", "worker", "gateway"])
def test_every_option_of_what_is_started_is_explained(command: str) -> None:
    options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", help_of(command), flags=re.MULTILINE)
    named = re.findall(r"--[a-z-]+", page("reference/configuration.md"))
    assert [one for one in options if one not in (*named, "--help")] == []


def test_every_cause_has_its_advice() -> None:
    given = [
        name
        for module in ("core/explain/why.py", "core/ready_queue/limits_and_quotas.py")
        for name in re.findall(r'\bCause\(\s*"([a-z_]+)"', code(module))
    ]
    assert "impossible" in given
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", page("guide/why.md"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall("[a-z_]+", row)]
    assert [name for name in given if name not in listed] == []


def test_every_kind_of_problem_is_listed() -> None:
    given = re.findall(r'^    code = "([a-z_]+)"', code("core/errors.py"), flags=re.MULTILINE)
    for path in sorted((*(SOURCE / "api").rglob("*.py"), *(SOURCE / "gateway").glob("*.py"))):
        given += re.findall(
            r'ProblemError\(\s*\d+,\s*"([a-z_]+)"', path.read_text(encoding="utf-8")
        )
    assert "store_full" in given
    listed = ticked(page("reference/http.md"))
    assert [name for name in given if name not in (*listed, "refused")] == []


def test_every_metric_is_explained() -> None:
    text = code("api/metrics.py") + code("gateway/metrics.py") + code("worker/metrics.py")
    given = re.findall(r'"(rota_[a-z_]+)"', text)
    given += [
        f"rota_{name}" for name in re.findall(r'^    "([a-z]+_[a-z_]+)": "', text, re.MULTILINE)
    ]
    assert "rota_append_seconds" in given
    listed = [name.removesuffix("_total") for name in ticked(page("reference/metrics.md"))]
    assert [name for name in given if name not in listed] == []


def test_every_method_of_the_clients_is_listed() -> None:
    shells = ("ask", "call", "close", "iterate", "run")
    given = [
        name
        for client in (Client, AsyncClient)
        for name in dir(client)
        if not name.startswith("_") and name not in shells
    ]
    assert "submit" in given
    listed = re.findall(r"\w+", " ".join(ticked(page("reference/sdk.md"))))
    assert [name for name in given if name not in listed] == []


def test_every_variable_of_a_job_is_explained() -> None:
    given = re.findall(r"\b(ROTA_[A-Z_]+)=", code("worker/runners/workspace.py"))
    assert "ROTA_FENCE" in given
    listed = ticked(page("guide/workers.md"))
    assert [name for name in given if name not in listed] == []


def test_every_test_that_a_promise_rests_on_exists() -> None:
    names = [name for name in ticked(page("guarantees.md")) if name.startswith(("tests/", "src/"))]
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
