"""`--retention` as people write it."""

from __future__ import annotations

import click
import pytest

from rota.cli.start.up import server, up

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("command", [server, up])
@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ([], 30 * DAY_MS),
        (["--retention", "90d"], 90 * DAY_MS),
        (["--retention", "24h"], DAY_MS),
        (["--retention", "forever"], None),
        (["--retention", "0"], None),
    ],
)
def test_a_length_of_time_or_for_ever(
    command: click.Command, written: list[str], ms: int | None
) -> None:
    assert command.make_context("rota", list(written)).params["retention_ms"] == ms


@pytest.mark.parametrize("written", ["12h", "soon", "-1d"])
def test_less_than_a_day_or_no_length_at_all_is_refused(written: str) -> None:
    with pytest.raises(click.BadParameter):
        server.make_context("rota", ["--retention", written])


def test_the_schema_is_brought_up_to_date_unless_told_otherwise() -> None:
    assert server.make_context("rota", []).params["migrate"] is True
    assert server.make_context("rota", ["--no-migrate"]).params["migrate"] is False
