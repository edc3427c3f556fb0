"""Arrays and gangs of functions: what is sent, and what they find in a test without a server."""

from __future__ import annotations

import pytest

from rota.sdk import App, Context
from rota.sdk.declare.options import job_body

app = App()
seen: list[tuple[str, int, int]] = []


@app.job()
def render(ctx: Context, film: str) -> int:
    assert ctx.array is not None
    seen.append((film, ctx.array.index, ctx.array.count))
    if ctx.array.index == 2 and film == "broken":
        raise ValueError("no frame")
    return ctx.array.index


@app.job()
def solve(ctx: Context) -> list[str]:
    assert ctx.gang is not None
    return [str(ctx.gang.index), str(ctx.gang.size), *ctx.gang.hosts]


def test_options_become_an_array_or_a_gang() -> None:
    body = job_body("render", {"count": 100, "max_parallel": 5})
    assert (body["count"], body["max_parallel"]) == (100, 5)
    assert job_body("solve", {"gang": 4})["gang"] == {"size": 4}


def test_an_array_runs_every_member_inline() -> None:
    seen.clear()
    with app.inline() as runs:
        job = render.submit("good", count=3)
        view = runs.job(job.id)
    assert seen == [("good", 0, 3), ("good", 1, 3), ("good", 2, 3)]
    assert view.status == "succeeded"
    assert view.array is not None
    assert (view.array.count, view.array.succeeded) == (3, 3)
    assert [run.view.array_index for run in runs] == [None, 0, 1, 2]


def test_an_array_fails_inline_with_a_member_that_does() -> None:
    with app.inline() as runs:
        job = render.submit("broken", count=3)
    view = runs.job(job.id)
    assert view.status == "failed"
    assert view.array is not None
    assert (view.array.succeeded, view.array.failed) == (2, 1)


def test_a_gang_returns_inline_what_its_first_member_returns() -> None:
    with app.inline():
        assert solve.submit(gang=2).result() == ["0", "2", "inline", "inline"]


def test_a_count_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    with app.inline(), pytest.raises(Exception, match="1000000"):
        render.submit("long", count=1_000_001)
