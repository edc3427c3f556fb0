"""Builds the commands of a noun (queues, schedules, …) from a table of its fields and verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click

from rota.cli.connect import answer, connected
from rota.cli.options import combined, confirm, json_option
from rota.cli.render import print_object, tell
from rota.sdk import Client
from rota.sdk.calls import Call

Param: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""An argument or an option, or several: a decorator of click."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One command of a noun: asks the server with `call`, or gathers an answer with `fetch`."""

    name: str
    help: str
    call: Callable[..., Call[Any]] | None = None
    """Takes the id of the object that was named, then `body` or the options."""
    draw: Callable[[Any], None] | None = None
    """Prints the answer for people."""
    fetch: Callable[..., object] | None = None
    """Takes the client, the object that was named, and the options; `--json` prints its result."""
    params: Sequence[Param] = ()
    """Its options, and the arguments after the one that names an object."""
    body: Callable[..., object] | None = None
    """Builds what `call` sends from the options, before the server is asked anything."""
    names_one: bool = True
    """Whether its first argument names an object."""
    reads: bool = False
    """Whether `call` takes the client too, because it reads before it writes."""
    ask: Callable[[Client, Any], str] | None = None
    """The question to confirm, unless `--yes` was given."""
    done: Callable[[Any], tuple[str, Mapping[str, object]]] | None = None
    """What is printed where the server answers nothing: a line, or an object."""

    def run(self, noun: Noun, given: dict[str, Any]) -> None:
        """Runs it with the arguments and options that click has read."""
        as_json, yes = given.pop("as_json"), given.pop("yes", True)
        typed = (given.pop(noun.argument),) if self.names_one else ()
        sent = () if self.body is None else (self.body(**given),)
        with connected() as client:
            found = tuple(noun.find(client, one) for one in typed)
            if self.ask is not None and not yes:
                confirm(self.ask(client, *found))
            if self.fetch is not None:
                self._show(self.fetch(client, *found, **given), as_json=as_json)
                return
            assert self.call is not None
            reading = (client,) if self.reads else ()
            ids = (noun.id_of(one) for one in found)
            call = self.call(*reading, *ids, *sent, **({} if sent else given))
            if self.done is not None:
                client.call(call)
                tell(*self.done(*found), as_json=as_json)
            else:
                assert self.draw is not None
                answer(client, call, self.draw, as_json=as_json)

    def _show(self, found: object, *, as_json: bool) -> None:
        if as_json:
            print_object(found)
        else:
            assert self.draw is not None
            self.draw(found)


def _as_typed(_client: Client, typed: str) -> str:
    return typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """Group of commands about one kind of object; without a verb it lists them."""

    name: str
    help: str
    default: Verb
    """Runs where no verb is named."""
    default_has_name: bool = False
    """Whether it can be named as well."""
    argument: str = "name"
    """What the argument that names an object is called."""
    complete: Callable[..., Any] | None = None
    find: Callable[[Client, str], Any] = _as_typed
    """Finds the object that was typed."""
    id_of: Callable[[Any], str] = str
    verbs: Sequence[Verb] = ()
    commands: Sequence[click.Command] = ()
    """Those that no table describes."""

    def group(self) -> click.Group:
        """Makes the group with all its commands."""

        def run(**given: Any) -> None:
            if click.get_current_context().invoked_subcommand is None:
                self.default.run(self, given)

        group = click.group(self.name, help=self.help, invoke_without_command=True)
        made = group(combined(*self.default.params, json_option)(run))
        named = [self.default] if self.default_has_name else []
        for command in (*map(self._command, [*self.verbs, *named]), *self.commands):
            made.add_command(command)
        return made

    def _command(self, verb: Verb) -> click.Command:
        def run(**given: Any) -> None:
            verb.run(self, given)

        params: list[Param] = []
        if verb.names_one:
            params.append(click.argument(self.argument, shell_complete=self.complete))
        params += verb.params
        if verb.ask is not None:
            params.append(
                click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
            )
        return click.command(verb.name, help=verb.help)(combined(*params, json_option)(run))


def listing(**fields: Any) -> Verb:
    """Makes the verb that lists the objects of a noun."""
    return Verb(**{"name": "list", "help": "", "names_one": False, **fields})


def removed(name: str) -> tuple[str, Mapping[str, object]]:
    """Says that an object was deleted by its name."""
    return f"removed {name}", {"name": name, "deleted": True}
