"""Draws the dependency graph around a job as a tree, in topological order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from rota.cli import id_lookup
from rota.cli.connect import answer, connected
from rota.cli.id_lookup import job_id
from rota.cli.options import json_option
from rota.cli.render import Styled, console, rich_text, short, status_cell
from rota.sdk import calls
from rota.wire.jobs import GraphNode, GraphView


@click.command()
@click.argument("job", shell_complete=id_lookup.complete_jobs)
@json_option
def graph(job: str, *, as_json: bool) -> None:
    """Draw the dependency graph of a job: below each job are those that wait for it."""
    with connected() as client:
        found = job_id(client, job)

        def draw(view: GraphView) -> None:
            screen = console()
            for branch in branches(view):
                line = rich_text(Styled(branch.lead, "dim"))
                line.append_text(rich_text(f"{short(branch.node.job_id)} {branch.node.name} "))
                line.append_text(rich_text(status_cell(branch.node.status)))
                line.append(f"  {branch.remark}" if branch.remark else "", style="dim")
                line.append("  <-" if branch.node.job_id == found else "", style="bold")
                screen.print(line, no_wrap=True, overflow="ellipsis", crop=True)
            if view.truncated:
                click.echo("the graph is larger than what is shown", err=True)

        answer(client, calls.graph(found), draw, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Branch:
    """One line: indentation, job and remark."""

    lead: str
    node: GraphNode
    remark: str


@dataclass(frozen=True, slots=True)
class _Step:
    job_id: str
    indent: str
    mark: str
    when: str
    last: bool


def branches(graph: GraphView) -> Iterator[Branch]:
    """Draws line by line, from the jobs that wait for nothing down to those nothing waits for.

    Uses its own stack: a chain may be longer than the interpreter's stack is deep.
    """
    nodes = {node.job_id: node for node in graph.nodes}
    below: dict[str, list[tuple[str, str]]] = {}
    upstream: dict[str, int] = {}
    for edge in graph.edges:
        if edge.source in nodes and edge.target in nodes:
            below.setdefault(edge.source, []).append((edge.target, edge.when))
            upstream[edge.target] = upstream.get(edge.target, 0) + 1
    stack = [_Step(one, "", "", "succeeded", last=True) for one in nodes if one not in upstream]
    stack.reverse()
    drawn: dict[str, bool] = {}
    while stack:
        step = stack.pop()
        again = step.job_id in drawn
        drawn[step.job_id] = True
        children = below.get(step.job_id, [])
        yield Branch(
            step.indent + step.mark, nodes[step.job_id], _remark(step, again and bool(children))
        )
        if not again:
            stack.extend(_steps_below(step, children))


def _remark(step: _Step, again: bool) -> str:
    parts = [] if step.when == "succeeded" else [f"when {step.when}"]
    parts += ["(drawn above)"] if again else []
    return " ".join(parts)


def _steps_below(step: _Step, children: list[tuple[str, str]]) -> list[_Step]:
    """Lists them in reverse, because the top of a stack is its end."""
    bar = "" if not step.mark else ("   " if step.last else "│  ")
    steps = [
        _Step(
            child,
            step.indent + bar,
            "└─ " if i == len(children) - 1 else "├─ ",
            when,
            i == len(children) - 1,
        )
        for i, (child, when) in enumerate(children)
    ]
    steps.reverse()
    return steps
