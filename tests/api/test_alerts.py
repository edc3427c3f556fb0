"""Alerts end to end: a cell in trouble, rules and channels by the API, real sends on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from rota.alerts.limits import CHANNELS_MAX
from rota.core.commands import Timing
from tests.api.cluster_servers import a_cell
from tests.api.in_process_server import InProcessServer, open_server, watch_of
from tests.engine.rig import until

SECRET = "a-secret-of-some-length"


@pytest.fixture(scope="module", autouse=True)
def _library_is_loaded() -> None:
    """Before the first test, and not by whoever only lists the tests: it takes a while."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the library imports is not ours to mend
        import apprise

        apprise.Apprise.instantiate("json://127.0.0.1")


class Ear:
    """Listens on loopback, answers every HTTP request, and remembers it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200

    async def start(self) -> Ear:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.heard.append((head[0].split()[1], headers, body))
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.heard]


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    one = await Ear().start()
    yield one
    await one.stop()


async def add_channel(
    house: InProcessServer, url: str, name: str = "ops", **more: Any
) -> dict[str, Any]:
    answer = await house.ask("PUT", f"/alert-channels/{name}", {"url": url, **more}, expect=200)
    return dict(answer)


async def fail_one(house: InProcessServer) -> None:
    """A dead letter."""
    worker_id = await house.register()
    await house.finish(await house.start(worker_id), "failed", error={"message": "no"})


async def test_a_dead_letter_sends_one_signed_webhook(house: InProcessServer, ear: Ear) -> None:
    watch = house.parts.alerts
    await add_channel(house, f"http://127.0.0.1:{ear.port}/in", secret=SECRET)
    await watch.evaluate()
    await fail_one(house)
    for _ in range(3):
        await watch.evaluate()
        await watch.deliver()
    ((path, headers, body),) = ear.heard
    told = json.loads(body)
    assert path == "/in"
    assert (told["rule"], told["status"], told["cell"]) == ("dead_letters", "firing", "here")
    stamp, digest = (part.partition("=")[2] for part in headers["rota-signature"].split(","))
    made = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == made
    shown = await house.ask("GET", "/alerts?status=firing", expect=200)
    assert [(one["name"], one["value"]) for one in shown["items"]] == [("dead_letters", 1.0)]
    (notice,) = (await house.ask("GET", "/alert-notices", expect=200))["items"]
    assert (notice["name"], notice["status"]) == ("dead_letters", "firing")


async def test_a_wait_alert_fires_and_resolves_when_a_worker_takes_the_job(
    house: InProcessServer, ear: Ear
) -> None:
    watch = house.parts.alerts
    rule = {"condition": "wait", "queue": "slow", "threshold": 0.001, "for": 0}
    await house.ask("PUT", "/alerts/slow-queue", rule, expect=200)
    await house.ask("PUT", "/alerts/no_workers", {"enabled": False}, expect=200)
    await add_channel(house, f"http://127.0.0.1:{ear.port}/")
    await house.submit(queue="slow")
    await until(lambda: house.engine.clock.now() - house.engine.ready_since()["slow"] > 5)
    await watch.evaluate()
    await watch.deliver()
    await house.lease(await house.register())
    await watch.evaluate()
    await watch.evaluate()
    await watch.deliver()
    assert [(one["rule"], one["status"]) for one in ear.documents] == [
        ("slow-queue", "firing"),
        ("slow-queue", "resolved"),
    ]


async def test_a_paused_queue_fires_no_wait_alert(house: InProcessServer) -> None:
    await house.ask("PUT", "/alerts/wait", {"threshold": 0, "for": 0}, expect=200)
    await house.submit(queue="later")
    await house.ask("POST", "/queues/later/pause", expect=200)
    look = house.parts.alerts._sampler.sample(["later"])
    assert (look.queues[""].waiting, look.queues[""].ready_ms) == (0, 0)
    assert look.queues["later"].waiting == 1


async def test_a_worker_that_goes_silent_fires_an_alert_and_one_that_leaves_does_not(
    ear: Ear,
) -> None:
    async with open_server(Timing(lease_ttl_ms=200)) as house:
        watch = house.parts.alerts
        await add_channel(house, f"http://127.0.0.1:{ear.port}/")
        leaver = await house.register("leaver")
        await house.ask("DELETE", f"/workers/{leaver}")
        await watch.evaluate()
        assert watch.saved.board.places == {}
        await house.register("sleeper")
        await until(lambda: all(one.worker.gone_at is not None for one in house.engine.workers()))
        await watch.evaluate()
        await watch.deliver()
        assert [one["rule"] for one in ear.documents] == ["worker_lost"]
        assert ear.documents[0]["value"] == 1


async def test_an_unreachable_receiver_gets_the_notification_later(
    house: InProcessServer, ear: Ear
) -> None:
    watch = house.parts.alerts
    await add_channel(house, f"http://127.0.0.1:{ear.port}/")
    await watch.evaluate()
    await fail_one(house)
    ear.status = 503
    await watch.evaluate()
    await watch.deliver()
    (channel,) = (await house.ask("GET", "/alert-channels", expect=200))["items"]
    assert (channel["waiting"], channel["last"]["error"]) == (1, "it answered 503")
    (notice,) = (await house.ask("GET", "/alert-notices", expect=200))["items"]
    (sent,) = notice["deliveries"]
    assert (sent["channel"], sent["status"], sent["tries"]) == ("ops", "waiting", 1)
    assert sent["next_try"] > sent["at"]
    await watch.deliver()
    assert len(ear.heard) == 1, "it is not due yet"
    ear.status = 204
    outbox = watch.saved.outbox
    outbox.letters = [replace(one, due_at=0) for one in outbox.letters]
    await watch.deliver()
    assert len(ear.heard) == 2
    assert outbox.letters == []
    (notice,) = (await house.ask("GET", "/alert-notices", expect=200))["items"]
    (sent,) = notice["deliveries"]
    assert (sent["status"], sent["tries"], sent["error"]) == ("taken", 2, None)
    again = watch_of(house.engine, house.parts.metrics, house.store)  # type: ignore[arg-type]
    await again.open()
    assert again.saved.outbox.past == outbox.past, "the next leader knows it too"


async def test_a_test_notification_is_the_last_delivery_of_its_channel(
    house: InProcessServer, ear: Ear
) -> None:
    await add_channel(house, f"http://127.0.0.1:{ear.port}/")
    (channel,) = (await house.ask("GET", "/alert-channels", expect=200))["items"]
    assert channel["last"] is None
    ear.status = 500
    await house.ask("POST", "/alert-channels/ops/test", expect=200)
    (channel,) = (await house.ask("GET", "/alert-channels", expect=200))["items"]
    assert channel["last"]["error"] == "it answered 500"
    ear.status = 200
    await house.ask("POST", "/alert-channels/ops/test", expect=200)
    (channel,) = (await house.ask("GET", "/alert-channels", expect=200))["items"]
    assert (channel["last"]["status"], channel["last"]["error"]) == ("taken", None)


async def test_a_rule_can_be_tested_without_being_set(house: InProcessServer) -> None:
    await add_channel(house, "https://hooks.example/x")
    await house.submit(queue="gpu")
    await until(lambda: house.engine.clock.now() - house.engine.ready_since()["gpu"] > 5)
    spec = {"condition": "wait", "queue": "gpu", "threshold": 0.001}
    tried = await house.ask("POST", "/alerts/gpu-wait/test", spec, expect=200)
    assert (tried["holds"], tried["tells"], tried["unit"]) == (True, ["ops"], "s")
    assert tried["message"].startswith("wait of queue gpu")
    spec["threshold"] = 86_400
    assert (await house.ask("POST", "/alerts/gpu-wait/test", spec, expect=200))["holds"] is False
    assert (await house.http.get("/alerts/gpu-wait")).status_code == 404
    counted = {"condition": "failure_rate", "queue": "gpu"}
    tried = await house.ask("POST", "/alerts/gpu-fails/test", counted, expect=200)
    assert tried["holds"] is None, "nobody has watched that queue for a whole window"


async def test_the_next_leader_sends_no_notification_twice(ear: Ear) -> None:
    async with a_cell(ttl_ms=1_500) as cell:
        first, second = await cell.pair()
        path, url = "/alert-channels/ops", f"http://127.0.0.1:{ear.port}/"
        # Asked of a follower, done by the leader.
        answer = await second.http.put(path, json={"url": url})
        assert answer.status_code == 200, answer.text
        await first.parts.alerts.evaluate()
        (await second.http.put("/alerts/disk_low", json={"threshold": 1e17})).raise_for_status()
        await first.parts.alerts.evaluate()
        await first.parts.alerts.deliver()
        assert [one["rule"] for one in ear.documents] == ["disk_low"]
        await first.crash()
        await until(lambda: second.engine.standing().leads)
        for _ in range(2):
            await second.parts.alerts.evaluate()
            await second.parts.alerts.deliver()
        assert [one["rule"] for one in ear.documents] == ["disk_low", "leader_changed"]
        shown = (await second.http.get("/alerts?status=firing")).json()["items"]
        assert [one["name"] for one in shown] == ["disk_low", "leader_changed"]


async def test_a_server_that_restarts_fires_no_leader_change_alert(house: InProcessServer) -> None:
    await house.parts.alerts.evaluate()
    again = watch_of(house.engine, house.parts.metrics, house.store)  # type: ignore[arg-type]
    await again.evaluate()
    assert again.saved.board.places == {}


async def test_a_server_that_does_not_lead_sends_no_notifications(house: InProcessServer) -> None:
    watch = watch_of(house.engine, house.parts.metrics, house.store)  # type: ignore[arg-type]
    await house.engine.stop()
    await watch.evaluate()
    assert watch.saved.board.epoch == 0
    answer = await house.http.get("/alerts")
    assert answer.status_code == 503


async def test_rules_and_channels_survive_a_restart(house: InProcessServer) -> None:
    await house.ask("PUT", "/alerts/wait", {"threshold": 42, "severity": "critical"}, expect=200)
    await house.ask("PUT", "/alerts/wait/silence", {"for": "1h", "reason": "r"}, expect=200)
    await add_channel(house, "https://hooks.example/T0/B0/hush", secret=SECRET)
    again = watch_of(house.engine, house.parts.metrics, house.store)  # type: ignore[arg-type]
    await again.open()
    assert again.settings == house.parts.alerts.settings
    shown = await house.ask("GET", "/alerts/wait", expect=200)
    assert (shown["threshold"], shown["severity"], shown["silence"]["reason"]) == (
        42,
        "critical",
        "r",
    )
    shown = await house.ask("DELETE", "/alerts/wait/silence", expect=200)
    assert shown["silence"] is None
    await house.ask("DELETE", "/alerts/wait", expect=204)
    shown = await house.ask("GET", "/alerts/wait", expect=200)
    assert (shown["threshold"], shown["builtin"]) == (600, True)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hush@hooks.example/T0/hush?token=hush",
        "mailto://user:hush@mail.example?to=ops@example.com",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#hush",
    ],
)
async def test_no_address_or_secret_is_ever_shown_again(house: InProcessServer, url: str) -> None:
    made = await add_channel(house, url, secret=SECRET)
    listed = await house.http.get("/alert-channels")
    for text in (json.dumps(made), listed.text, repr(house.parts.alerts.settings)):
        for word in ("hush", SECRET, "T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"):
            assert word not in text
    assert made["signed"]


@pytest.mark.parametrize("url", ["pigeon://hush@coop", "mailto://user:hush@", "slack://hush"])
async def test_an_address_that_is_refused_is_not_in_the_log_either(
    house: InProcessServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await house.http.put("/alert-channels/x", json={"url": url})
    assert answer.status_code == 422
    assert "hush" not in answer.text + caplog.text


async def test_an_apprise_address_gets_a_readable_message(house: InProcessServer, ear: Ear) -> None:
    """Through apprise: its own plain-JSON service, on loopback."""
    await add_channel(house, f"json://127.0.0.1:{ear.port}/in")
    tried = await house.ask("POST", "/alert-channels/ops/test", expect=200)
    assert tried == {"taken": True, "message": "delivered"}
    told = ear.documents[0]
    assert told["title"] == "[Rota] here: test test (info)"
    assert "test notification for the channel 'ops'" in told["message"]
    ear.status = 500
    tried = await house.ask("POST", "/alert-channels/ops/test", expect=200)
    assert tried["taken"] is False


async def test_a_chat_gets_a_readable_message(house: InProcessServer, ear: Ear) -> None:
    """Mattermost takes what Slack takes, and can be anywhere."""
    await add_channel(house, f"mmost://127.0.0.1:{ear.port}/3ccdd113474722377935511fc85d3dd4")
    assert (await house.ask("POST", "/alert-channels/ops/test", expect=200))["taken"]
    path, _, body = ear.heard[0]
    assert path == "/hooks/3ccdd113474722377935511fc85d3dd4"
    assert "test notification for the channel 'ops'" in json.loads(body)["text"]


async def test_a_mail_is_sent(house: InProcessServer) -> None:
    said: list[bytes] = []

    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        writing = False
        while line := await reader.readline():
            said.append(line)
            ends = line == b".\r\n"
            if not writing or ends:
                word = line[:4].upper()
                writing = word == b"DATA"
                writer.write(
                    {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}.get(word, b"250 ok\r\n")
                )
            if line[:4].upper() == b"QUIT":
                break
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(smtp, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        query = "from=rota@example.com&to=ops@example.com&mode=insecure"
        await add_channel(house, f"mailto://127.0.0.1:{port}?{query}")
        assert (await house.ask("POST", "/alert-channels/ops/test", expect=200))["taken"]
    # SMTP's words are the same in any case, and Python 3.13 writes them in another than before.
    assert b"rcpt to:<ops@example.com>\r\n" in [line.lower() for line in said]
    assert b"Subject: [Rota] here: test test (info)\r\n" in said


async def test_a_webhook_that_cannot_be_reached_says_so(house: InProcessServer, ear: Ear) -> None:
    await ear.stop()
    await add_channel(house, f"http://127.0.0.1:{ear.port}/hush")
    tried = await house.ask("POST", "/alert-channels/ops/test", expect=200)
    assert tried == {"taken": False, "message": "it cannot be reached: Connection refused"}


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/alerts/mine", {}, 422, "condition"),
        ("/alerts/wait", {"window": "3h"}, 422, "window"),
        ("/alerts/wait", {"condition": "weather"}, 422, "condition"),
        ("/alerts/disk_low", {"queue": "q"}, 422, "queue"),
        ("/alerts/wait", {"channels": ["nobody"]}, 422, "channels"),
        ("/alerts/no where", {"condition": "wait"}, 422, "name"),
        ("/alert-channels/x", {"url": "carrier-pigeon"}, 422, "url"),
        ("/alert-channels/x", {"url": "pigeon://coop"}, 422, "url"),
        ("/alert-channels/x", {"url": "https://"}, 422, "url"),
        ("/alerts/nobody/silence", {"for": "1h"}, 404, None),
    ],
)
async def test_an_invalid_rule_or_channel_is_refused_with_its_reason(
    house: InProcessServer, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = await house.http.put(path, json=body)
    assert answer.status_code == status, answer.text
    assert field is None or field in answer.text


async def test_a_channel_that_a_rule_uses_cannot_be_deleted(house: InProcessServer) -> None:
    await add_channel(house, "https://hooks.example/in")
    await house.ask("PUT", "/alerts/wait", {"channels": ["ops"]}, expect=200)
    await house.ask("DELETE", "/alert-channels/ops", expect=409)
    await house.ask("DELETE", "/alerts/wait", expect=204)
    await house.ask("DELETE", "/alert-channels/ops", expect=204)
    await house.ask("DELETE", "/alerts/wait", expect=409)


async def test_the_number_of_channels_is_limited(house: InProcessServer) -> None:
    for n in range(CHANNELS_MAX):
        await add_channel(house, "https://hooks.example/in", f"c{n}")
    answer = await house.http.put("/alert-channels/one-more", json={"url": "https://a.example"})
    assert answer.status_code == 409
