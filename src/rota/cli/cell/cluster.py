"""Shows the servers of a cell: who leads, who stands by, how far behind, how durable."""

from __future__ import annotations

import click

from rota.cli.connect import answer, connected
from rota.cli.options import json_option, now_ms
from rota.cli.render import Cell, Column, Row, Styled, show_facts, show_table
from rota.cli.text import age, plain
from rota.sdk import calls
from rota.wire.service import ClusterView, LagView, NodeView

COLUMNS = (
    Column("NODE"),
    Column("ROLE"),
    Column("STATUS"),
    Column("LAG", right=True),
    Column("SEEN", right=True),
    Column("UP", spare=1, right=True),
    Column("VERSION", spare=2),
    Column("ADDRESS", spare=3, cut=True),
)


@click.command()
@json_option
def cluster(*, as_json: bool) -> None:
    """Say who leads, who stands by, and what an accepted job would survive."""
    with connected() as client:
        answer(client, calls.cluster(), _draw, as_json=as_json)


def _draw(view: ClusterView) -> None:
    leader: Cell = plain(view.leader) if view.leader else Styled("none: nobody leads", "red")
    facts: list[tuple[str, Cell]] = [
        ("leader", leader),
        ("epoch", str(view.epoch)),
        ("durability", plain(view.durability)),
        *(("warning", Styled(plain(one), "yellow")) for one in view.warnings),
    ]
    show_facts(facts)
    click.echo()
    now = now_ms()
    show_table(COLUMNS, [_row(node, now) for node in view.nodes], empty="no servers are known")


def _row(node: NodeView, now: int) -> Row:
    leads = node.role == "leader"
    return [
        plain(node.node),
        Styled(plain(node.role), "green" if leads else "dim"),
        Styled(plain(node.status), "green" if node.status == "up" else "red"),
        "" if leads else _lag(node.lag),
        f"{age(node.last_seen, now)} ago",
        age(node.started_at, now),
        plain(node.version),
        plain(node.address),
    ]


def _lag(lag: LagView) -> str:
    if not lag.seconds:
        return "none"
    return f"{lag.records} records, {lag.seconds:.1f} s"
