"""Writes docs/job-lifecycle.md from the tables in rota.core.lifecycle; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from rota.core import lifecycle

TARGET = Path(__file__).parents[1] / "docs" / "job-lifecycle.md"

State = TypeVar("State", bound=StrEnum)
Verb = TypeVar("Verb", bound=StrEnum)


class Machine(NamedTuple, Generic[State, Verb]):
    """One state machine with descriptions of its states and verbs."""

    transitions: Mapping[tuple[State, Verb], State]
    states: Mapping[State, str]
    verbs: Mapping[Verb, str]
    final: Sequence[State]


OPENING = """\
<!-- Written by `make docs` from src/rota/core/lifecycle.py: change that, not this. -->
# The life of a job

A **job** is what was asked for. Each attempt to run it is an **execution** on one worker. The
scheduler looks every move up in these tables and refuses others (`IllegalTransition`, answered as
409). A new job is `pending`, and becomes `queued` in the same step if it waits only for a worker.
Only a retry leaves a final state; it starts a new life of the job. The pictures leave out moves
that do not change the state.
"""


def render() -> str:
    jobs = Machine(
        lifecycle.JOB_TRANSITIONS,
        lifecycle.JOB_STATE_MEANING,
        lifecycle.JOB_VERB_MEANING,
        lifecycle.JOB_FINAL,
    )
    executions = Machine(
        lifecycle.EXECUTION_TRANSITIONS,
        lifecycle.EXECUTION_STATE_MEANING,
        lifecycle.EXECUTION_VERB_MEANING,
        lifecycle.EXECUTION_FINAL,
    )
    return "\n".join(
        [OPENING, "## Jobs\n", _chapter(jobs), "## Executions\n", _chapter(executions)]
    )


def _chapter(machine: Machine[State, Verb]) -> str:
    return "\n".join([_diagram(machine), _states(machine), _moves(machine), _verbs(machine)])


def _diagram(machine: Machine[State, Verb]) -> str:
    arrows: dict[tuple[State, State], list[str]] = {}
    for (source, verb), target in machine.transitions.items():
        if source is not target:
            arrows.setdefault((source, target), []).append(verb.value)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_first(machine)}"]
    for (source, target), verbs in arrows.items():
        lines.append(f"    {source.value} --> {target.value}: {', '.join(verbs)}")
    lines += [f"    {state.value} --> [*]" for state in machine.final]
    return "\n".join([*lines, "```", ""])


def _first(machine: Machine[State, Verb]) -> str:
    return next(iter(machine.states)).value


def _states(machine: Machine[State, Verb]) -> str:
    rows = [
        (f"`{state.value}`", meaning, "yes" if state in machine.final else "")
        for state, meaning in machine.states.items()
    ]
    return _table(("state", "meaning", "final"), rows)


def _moves(machine: Machine[State, Verb]) -> str:
    rows = [
        (f"`{source.value}`", f"`{verb.value}`", f"`{target.value}`")
        for (source, verb), target in machine.transitions.items()
    ]
    return _table(("from", "verb", "to"), rows)


def _verbs(machine: Machine[State, Verb]) -> str:
    rows = [(f"`{verb.value}`", meaning) for verb, meaning in machine.verbs.items()]
    return _table(("verb", "meaning"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the file; with `--check` exits with 1 if it is stale."""
    text = render()
    fresh = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        if not fresh:
            print(f"{TARGET.name} is stale: run `make docs`", file=sys.stderr)
        return 0 if fresh else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
