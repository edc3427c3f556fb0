"""The tree of commands itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rota import __version__
from rota.cli.main import SECTIONS, tree
from tests.cli.conftest import Rota
from tests.sdk.fake_server import TOKEN, SmallServer


def modules_after(*args: str, **environ: str) -> list[str]:
    """What a fresh interpreter has loaded after a command."""
    script = (
        "import json, sys\nfrom rota.cli.main import run\n"
        f"run({list(args)!r})\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ
    )
    loaded: list[str] = json.loads(ran.stderr.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("args", [("--help",), ("--version",)])
def test_help_and_version_load_next_to_nothing(args: tuple[str, ...]) -> None:
    loaded = modules_after(*args)
    for heavy in ("rich", "httpx2", "msgspec", "starlette", "apsw", "asyncio"):
        assert heavy not in loaded


def test_json_needs_no_drawing(server: SmallServer) -> None:
    job = server.add_job()
    for args in (("jobs",), ("show", job.job_id), ("stats",), ("queues",), ("top",), ("doctor",)):
        loaded = modules_after(*args, "--json", ROTA_URL=server.url, ROTA_TOKEN=TOKEN)
        assert "rich" not in loaded, args
        assert "starlette" not in loaded


def test_the_version_is_printed(rota: Rota) -> None:
    assert rota("--version").out == f"rota {__version__}\n"


@pytest.mark.parametrize("words", [(), ("history",), ("report",)])
def test_an_incomplete_command_lists_its_subcommands_once(
    rota: Rota, words: tuple[str, ...]
) -> None:
    run = rota(*words)
    assert run.status == 2
    assert run.err.startswith("Usage: rota")
    assert run.err.count("Usage:") == 1
    assert "Options:" in run.err


@pytest.mark.parametrize("name", [name for words in SECTIONS.values() for name in words])
def test_every_command_loads_and_has_a_help(rota: Rota, name: str) -> None:
    command = tree.get_command(click.Context(tree), name)
    assert command is not None
    assert command.name == name
    shown = rota(name, "--help")
    assert shown.status == 0
    assert "Usage: rota " + name in shown.out


WITHOUT_JSON = (
    *("up", "server", "worker", "gateway", "events listen"),
    *("artifacts get", "bundles get", "alerts dashboard", "alerts rules", "completion"),
    "verify",
)
"""What starts something, fetches or prints a file, or tells a story."""


def runnable(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """All that can be run below a word, the word itself among it."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    if command.invoke_without_command:
        yield words, command
    inside = click.Context(command)
    for name in command.list_commands(inside):
        below = command.get_command(inside, name)
        assert below is not None
        yield from runnable(f"{words} {name}", below)


@pytest.mark.parametrize("name", [name for words in SECTIONS.values() for name in words])
def test_every_command_that_says_something_says_it_in_json_too(name: str) -> None:
    first = tree.get_command(click.Context(tree), name)
    assert first is not None
    for words, command in runnable(name, first):
        takes = any("--json" in option.opts for option in command.params)
        assert takes is (words not in WITHOUT_JSON), words


@pytest.mark.parametrize("name", [name for words in SECTIONS.values() for name in words])
def test_no_help_shows_a_missing_bound_as_none(name: str) -> None:
    first = tree.get_command(click.Context(tree), name)
    assert first is not None
    for words, command in runnable(name, first):
        shown = command.get_help(click.Context(command))
        assert "None" not in shown, words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(rota: Rota, shell: str) -> None:
    script = rota("completion", shell)
    assert script.status == 0
    assert "_ROTA_COMPLETE" in script.out


def completed(line: str, **environ: str) -> list[str]:
    """What a shell is offered for the last word of a line."""
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ran = subprocess.run(
        [sys.executable, "-c", "from rota.cli.main import main; main()"],
        env={"_ROTA_COMPLETE": "bash_complete", **asked, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    return [offer.removeprefix("plain,") for offer in ran.stdout.split()]


def test_completion_offers_commands() -> None:
    assert completed("rota su") == ["submit"]


def test_completion_offers_jobs_workers_and_queues(server: SmallServer) -> None:
    job, who = server.add_job(), {"ROTA_URL": server.url, "ROTA_TOKEN": TOKEN}
    server.add_worker("box-1")
    assert completed("rota show ", **who) == [job.job_id[-8:]]
    assert completed("rota show zz", **who) == []
    assert completed("rota workers drain b", **who) == ["box-1"]


def test_completion_without_a_server_offers_nothing() -> None:
    assert completed("rota show ", ROTA_URL="http://127.0.0.1:9") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_to_a_full_disk_is_reported_in_one_line() -> None:
    command = [sys.executable, "-m", "rota", "--version"]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == "rota: cannot write the output: No space left on device\n"
