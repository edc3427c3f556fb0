"""A noun's table becomes commands that check what was typed, then find, ask and print."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from rota.cli.nouns import Noun, Verb, listing, removed
from rota.sdk.methods import schedule_calls as calls

UNREACHABLE = {"ROTA_URL": "http://127.0.0.1:9", "ROTA_TOKEN": "t"}


def refuse(*, size: int | None) -> dict[str, int | None]:
    raise click.UsageError("name what to change: --size")


NOUN = Noun(
    name="boxes",
    help="List boxes.",
    default=listing(help="List boxes by name.", fetch=lambda client: [], draw=print),
    default_has_name=True,
    verbs=(
        Verb(
            "set",
            "Change a box.",
            calls.set_calendar,
            print,
            params=(click.option("--size", type=int, help="How large."),),
            body=refuse,
        ),
        Verb(
            "delete",
            "Remove a box.",
            calls.delete_calendar,
            ask=lambda _client, name: f"Remove {name}?",
            done=removed,
        ),
    ),
).group()


def test_a_table_of_verbs_becomes_a_group_of_commands() -> None:
    assert NOUN.list_commands(click.Context(NOUN)) == ["delete", "list", "set"]
    options = {name: [one.name for one in NOUN.commands[name].params] for name in NOUN.commands}
    assert options == {
        "set": ["name", "size", "as_json"],
        "delete": ["name", "yes", "as_json"],
        "list": ["as_json"],
    }


def test_what_was_typed_is_checked_before_a_server_is_asked() -> None:
    ran = CliRunner(env=UNREACHABLE).invoke(NOUN, ["set", "a"])
    assert ran.exit_code == 2
    assert "name what to change" in ran.output


@pytest.mark.parametrize("words", [["delete", "a"], ["delete", "a", "--json"]])
def test_a_question_that_nobody_can_answer_needs_yes(words: list[str]) -> None:
    ran = CliRunner(env=UNREACHABLE).invoke(NOUN, words)
    assert ran.exit_code == 1
    assert "Remove a? There is no terminal to ask on: add --yes" in ran.output


def test_the_default_verb_lists_with_and_without_its_name() -> None:
    runner = CliRunner(env=UNREACHABLE)
    assert runner.invoke(NOUN, []).output == runner.invoke(NOUN, ["list"]).output == "[]\n"
    assert runner.invoke(NOUN, ["--json"]).output == "[]\n"
