"""Lays a dependency graph out as an indented tree, each job drawn in full once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rota.wire.jobs import GraphNode, GraphView


@dataclass(frozen=True, slots=True)
class Branch:
    """One line: what stands before the job, the job, and what is said after it."""

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
    """Line by line, from the jobs that wait for nobody down to those nobody waits for.

    Kept on a list of our own: a chain may be longer than the interpreter's stack is deep.
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
    """Reversed, because the top of a stack is its end."""
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
