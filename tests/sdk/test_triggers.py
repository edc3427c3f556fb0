"""Triggers that a program declares: `@app.on`, deployed, set off, retired."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from rota.sdk import App, AsyncClient, Client, InvalidError
from tests.api.in_process_server import TOKEN
from tests.sdk.real_server import real_server, small_worker


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real_server() as found:
        yield found


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url, TOKEN) as one:
        yield one


def test_a_function_runs_for_each_event_that_passes(url: str, app: App) -> None:
    @app.on("object.uploaded", where="data.size > 10")
    def scan(event: dict[str, Any]) -> str:
        return str(event["data"]["name"])

    assert app.deploy("runs").created == ["scan"]
    with small_worker(url, app):
        accepted = app.client.send_events(
            [
                {"type": "object.uploaded", "source": "/s", "data": {"name": "a", "size": 1}},
                {"type": "object.uploaded", "source": "/s", "data": {"name": "b", "size": 20}},
            ]
        )
        assert [len(one.job_ids) for one in accepted] == [0, 1]
        assert app.client.result(accepted[1].job_ids[0], timeout_s=20) == "b"


def test_gathered_events_come_as_a_list(url: str, app: App) -> None:
    @app.on("row.added", batch=2, name="rows")
    def load(events: list[Any], table: str = "") -> list[Any]:
        return [table, *(event["id"] for event in events)]

    @app.on("row.gone", batch={"size": 2, "wait": 60}, kwargs={"table": "{{event.data.table}}"})
    @app.job
    def drop(events: list[Any], table: str) -> list[Any]:
        return [table, len(events)]

    app.deploy("rows")
    with small_worker(url, app):
        for kind, wanted in (("row.added", ["", "1", "2"]), ("row.gone", ["t", 2])):
            for number in "12":
                event = {"type": kind, "source": f"/{kind}", "id": number, "data": {"table": "t"}}
                accepted = app.client.send_event(event)
            assert app.client.result(accepted.job_ids[0], timeout_s=20) == wanted


def test_a_function_that_takes_nothing_is_called_with_nothing(app: App) -> None:
    @app.on("tick", debounce=timedelta(seconds=5))
    def refresh() -> None: ...

    body = app.reactions["refresh"]
    assert body["debounce"] == 5
    assert b"event" not in bytes(body["job"]["payload"])


def test_a_trigger_that_is_no_longer_declared_is_retired(url: str) -> None:
    with App(url, TOKEN) as before:

        @before.on("x.*")
        def old(event: Any) -> None: ...

        @before.cron("0 0 1 1 *")
        def yearly() -> None: ...

        assert sorted(before.deploy("shop").created) == ["old", "yearly"]
    with App(url, TOKEN) as after:

        @after.on("x.*")
        def new(event: Any) -> None: ...

        done = after.deploy("shop")
    assert (done.created, sorted(done.retired)) == (["new"], ["old", "yearly"])


def test_what_the_server_would_refuse_is_refused_where_it_is_written(app: App) -> None:
    with pytest.raises(ValueError, match="the trigger of bad"):

        @app.on("has space")
        def bad(event: Any) -> None: ...

    with pytest.raises(TypeError, match="wher"):
        app.on("x", wher="typo")  # type: ignore[call-arg]

    @app.on("one")
    def twice(event: Any) -> None: ...

    with pytest.raises(ValueError, match="two triggers are named"):
        app.on("two", name="twice")(twice)


async def test_every_call_has_its_method(url: str) -> None:
    spec = {"name": "both", "event": "both.*", "job": {"name": "j", "task": {"kind": "noop"}}}
    event = {"type": "both.a", "source": "/s"}
    async with AsyncClient(url, TOKEN) as client:
        made = await client.create_trigger(spec)
        changed = await client.update_trigger(made.trigger_id, {"filter": {"a": 1}})
        assert changed.filter == {"a": 1}
        assert (await client.pause_trigger(made.trigger_id)).paused
        assert not (await client.resume_trigger(made.trigger_id)).paused
        (trial,) = await client.try_event(event, trigger_id=made.trigger_id)
        assert trial.outcome == "filtered"
        await client.send_event(event)
        (line,) = (await client.trigger_events(made.trigger_id)).items
        assert line.outcome == "filtered"
        assert [one.name for one in await client.triggers(name="both")] == ["both"]
        assert (await client.trigger(made.trigger_id)).revision == 2
        assert (await client.events(type="both.a")).items[0].source == "/s"
        hook = await client.set_hook("h", {"scheme": "github"})
        assert hook.secret
        assert [one.name for one in await client.hooks()] == ["h"]
        await client.delete_hook("h")
        await client.delete_trigger(made.trigger_id)


def test_a_bad_event_says_what_is_wrong(url: str) -> None:
    with Client(url, TOKEN) as client, pytest.raises(InvalidError, match="server's own"):
        client.send_event({"type": "rota.job.failed", "source": "/s"})
