"""Events while servers and listeners are killed: each has its effect, and has it once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rota.sdk import Client, JobSearch
from tests.process.cell import Cell, until

pytestmark = pytest.mark.process

MANY = 400


def trigger(client: Client, **fields: Any) -> str:
    spec = {"name": "t", "event": "x.*", "job": {"name": "made", "task": {"kind": "noop"}}}
    return client.create_trigger({**spec, **fields}).trigger_id


def events_made(client: Client) -> Counter[str]:
    """How many jobs each event is in."""
    found: Counter[str] = Counter()
    for job in client.jobs(JobSearch(name="made")):
        payload = json.loads(bytes(job.payload))
        for one in payload.get("events", [payload]):
            found[one["id"]] += 1
    return found


def test_events_sent_through_a_crash_have_their_effect_once(cell: Cell) -> None:
    cell.up()
    trigger(cell.client(), batch={"size": 7, "wait": "1s"})
    sent = threading.Event()

    def send() -> None:
        # It repeats what was not answered, as any sender would.
        with cell.client() as client:
            for number in range(MANY):
                client.send_event({"type": "x.y", "source": "/s", "id": str(number)})
                if number == MANY // 4:
                    sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert sent.wait(30)
    cell.server.kill()
    cell.up()
    sender.join(60)
    assert not sender.is_alive()
    client = cell.client()
    until(lambda: sum(events_made(client).values()) >= MANY, "every event in a job")
    assert events_made(client) == Counter({str(number): 1 for number in range(MANY)})


def test_a_listener_that_is_killed_misses_no_file_and_publishes_none_twice(
    cell: Cell, tmp_path: Path
) -> None:
    cell.up()
    client = cell.client()
    trigger(client, event="file.*")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    config = tmp_path / "events.toml"
    config.write_text(
        f"url = '{cell.url}'\ntoken = '{cell.token}'\nstate = '{tmp_path}/state'\n"
        f"[[source]]\nkind = 'folder'\nname = 'in'\npath = '{inbox}'\nevery = 0.05\n"
    )
    listener = cell.launch("events", "listen", "--config", str(config))
    until(lambda: (tmp_path / "state" / "in.json").exists(), "the listener's first look")
    for number in range(3):
        (inbox / f"{number}.csv").write_text("x")
    until(lambda: len(events_made(client)) == 3, "the first files")
    listener.kill()
    for number in range(3, 6):
        (inbox / f"{number}.csv").write_text("x")
    listener = cell.launch("events", "listen", "--config", str(config))
    until(lambda: len(events_made(client)) >= 6, "the others")
    made = events_made(client)
    assert sorted(name.partition(":")[0] for name in made) == [f"{n}.csv" for n in range(6)]
    assert set(made.values()) == {1}
    assert listener.stop() == 0
