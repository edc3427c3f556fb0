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
from tests.api.in_process_server import InProcessServer, alert_evaluator_of, open_server
from tests.engine.rig import until

SECRET = "a-secret-of-some-length"


@pytest.fixture(scope="module", autouse=True)
def _library_is_loaded() -> None:
    """Loads apprise before the first test, because that takes a while."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the library imports is not ours to mend
        import apprise

        apprise.Apprise.instantiate("json://127.0.0.1")


class HttpReceiver:
    """HTTP server on loopback that answers every request and remembers it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200

    async def start(self) -> HttpReceiver:
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
async def receiver() -> AsyncIterator[HttpReceiver]:
    one = await HttpReceiver().start()
    yield one
    await one.stop()


async def add_channel(
    server: InProcessServer, url: str, name: str = "ops", **more: Any
) -> dict[str, Any]:
    answer = await server.ask("PUT", f"/alert-channels/{name}", {"url": url, **more}, expect=200)
    return dict(answer)


async def fail_one(server: InProcessServer) -> None:
    """Makes a dead letter."""
    worker_id = await server.register()
    await server.finish(await server.start(worker_id), "failed", error={"message": "no"})


async def test_a_dead_letter_sends_one_signed_webhook(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    evaluator = server.deps.alerts
    await add_channel(server, f"http://127.0.0.1:{receiver.port}/in", secret=SECRET)
    await evaluator.evaluate()
    await fail_one(server)
    for _ in range(3):
        await evaluator.evaluate()
        await evaluator.deliver()
    ((path, headers, body),) = receiver.heard
    shown = json.loads(body)
    assert path == "/in"
    assert (shown["rule"], shown["status"], shown["cell"]) == ("dead_letters", "firing", "here")
    stamp, digest = (part.partition("=")[2] for part in headers["rota-signature"].split(","))
    made = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == made
    shown = await server.ask("GET", "/alerts?status=firing", expect=200)
    assert [(one["name"], one["value"]) for one in shown["items"]] == [("dead_letters", 1.0)]
    (notice,) = (await server.ask("GET", "/alert-notices", expect=200))["items"]
    assert (notice["name"], notice["status"]) == ("dead_letters", "firing")


async def test_a_wait_alert_fires_and_resolves_when_a_worker_takes_the_job(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    evaluator = server.deps.alerts
    rule = {"condition": "wait", "queue": "slow", "threshold": 0.001, "for": 0}
    await server.ask("PUT", "/alerts/slow-queue", rule, expect=200)
    await server.ask("PUT", "/alerts/no_workers", {"enabled": False}, expect=200)
    await add_channel(server, f"http://127.0.0.1:{receiver.port}/")
    await server.submit(queue="slow")
    await until(lambda: server.engine.clock.now() - server.engine.ready_since()["slow"] > 5)
    await evaluator.evaluate()
    await evaluator.deliver()
    await server.lease(await server.register())
    await evaluator.evaluate()
    await evaluator.evaluate()
    await evaluator.deliver()
    assert [(one["rule"], one["status"]) for one in receiver.documents] == [
        ("slow-queue", "firing"),
        ("slow-queue", "resolved"),
    ]


async def test_a_paused_queue_fires_no_wait_alert(server: InProcessServer) -> None:
    await server.ask("PUT", "/alerts/wait", {"threshold": 0, "for": 0}, expect=200)
    await server.submit(queue="later")
    await server.ask("POST", "/queues/later/pause", expect=200)
    look = server.deps.alerts._sampler.sample(["later"])
    assert (look.queues[""].waiting, look.queues[""].ready_ms) == (0, 0)
    assert look.queues["later"].waiting == 1


async def test_a_worker_that_goes_silent_fires_an_alert_and_one_that_leaves_does_not(
    receiver: HttpReceiver,
) -> None:
    async with open_server(Timing(lease_ttl_ms=200)) as server:
        evaluator = server.deps.alerts
        await add_channel(server, f"http://127.0.0.1:{receiver.port}/")
        leaver = await server.register("leaver")
        await server.ask("DELETE", f"/workers/{leaver}")
        await evaluator.evaluate()
        assert evaluator.saved.board.places == {}
        await server.register("sleeper")
        await until(lambda: all(one.worker.gone_at is not None for one in server.engine.workers()))
        await evaluator.evaluate()
        await evaluator.deliver()
        assert [one["rule"] for one in receiver.documents] == ["worker_lost"]
        assert receiver.documents[0]["value"] == 1


async def test_an_unreachable_receiver_gets_the_notification_later(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    evaluator = server.deps.alerts
    await add_channel(server, f"http://127.0.0.1:{receiver.port}/")
    await evaluator.evaluate()
    await fail_one(server)
    receiver.status = 503
    await evaluator.evaluate()
    await evaluator.deliver()
    (channel,) = (await server.ask("GET", "/alert-channels", expect=200))["items"]
    assert (channel["waiting"], channel["last"]["error"]) == (1, "it answered 503")
    (notice,) = (await server.ask("GET", "/alert-notices", expect=200))["items"]
    (sent,) = notice["deliveries"]
    assert (sent["channel"], sent["status"], sent["tries"]) == ("ops", "waiting", 1)
    assert sent["next_try"] > sent["at"]
    await evaluator.deliver()
    assert len(receiver.heard) == 1, "it is not due yet"
    receiver.status = 204
    outbox = evaluator.saved.outbox
    outbox.letters = [replace(one, due_at=0) for one in outbox.letters]
    await evaluator.deliver()
    assert len(receiver.heard) == 2
    assert outbox.letters == []
    (notice,) = (await server.ask("GET", "/alert-notices", expect=200))["items"]
    (sent,) = notice["deliveries"]
    assert (sent["status"], sent["tries"], sent["error"]) == ("taken", 2, None)
    again = alert_evaluator_of(server.engine, server.deps.metrics, server.store)  # type: ignore[arg-type]
    await again.open()
    assert again.saved.outbox.past == outbox.past, "the next leader knows it too"


async def test_a_test_notification_is_the_last_delivery_of_its_channel(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    await add_channel(server, f"http://127.0.0.1:{receiver.port}/")
    (channel,) = (await server.ask("GET", "/alert-channels", expect=200))["items"]
    assert channel["last"] is None
    receiver.status = 500
    await server.ask("POST", "/alert-channels/ops/test", expect=200)
    (channel,) = (await server.ask("GET", "/alert-channels", expect=200))["items"]
    assert channel["last"]["error"] == "it answered 500"
    receiver.status = 200
    await server.ask("POST", "/alert-channels/ops/test", expect=200)
    (channel,) = (await server.ask("GET", "/alert-channels", expect=200))["items"]
    assert (channel["last"]["status"], channel["last"]["error"]) == ("taken", None)


async def test_a_rule_can_be_tested_without_being_set(server: InProcessServer) -> None:
    await add_channel(server, "https://hooks.example/x")
    await server.submit(queue="gpu")
    await until(lambda: server.engine.clock.now() - server.engine.ready_since()["gpu"] > 5)
    spec = {"condition": "wait", "queue": "gpu", "threshold": 0.001}
    tried = await server.ask("POST", "/alerts/gpu-wait/test", spec, expect=200)
    assert (tried["holds"], tried["tells"], tried["unit"]) == (True, ["ops"], "s")
    assert tried["message"].startswith("wait of queue gpu")
    spec["threshold"] = 86_400
    assert (await server.ask("POST", "/alerts/gpu-wait/test", spec, expect=200))["holds"] is False
    assert (await server.http.get("/alerts/gpu-wait")).status_code == 404
    counted = {"condition": "failure_rate", "queue": "gpu"}
    tried = await server.ask("POST", "/alerts/gpu-fails/test", counted, expect=200)
    assert tried["holds"] is None, "nobody has watched that queue for a whole window"


async def test_the_next_leader_sends_no_notification_twice(receiver: HttpReceiver) -> None:
    async with a_cell(ttl_ms=1_500) as cell:
        first, second = await cell.pair()
        path, url = "/alert-channels/ops", f"http://127.0.0.1:{receiver.port}/"
        # Asked of a follower, done by the leader.
        answer = await second.http.put(path, json={"url": url})
        assert answer.status_code == 200, answer.text
        await first.deps.alerts.evaluate()
        (await second.http.put("/alerts/disk_low", json={"threshold": 1e17})).raise_for_status()
        await first.deps.alerts.evaluate()
        await first.deps.alerts.deliver()
        assert [one["rule"] for one in receiver.documents] == ["disk_low"]
        await first.crash()
        await until(lambda: second.engine.standing().leads)
        for _ in range(2):
            await second.deps.alerts.evaluate()
            await second.deps.alerts.deliver()
        assert [one["rule"] for one in receiver.documents] == ["disk_low", "leader_changed"]
        shown = (await second.http.get("/alerts?status=firing")).json()["items"]
        assert [one["name"] for one in shown] == ["disk_low", "leader_changed"]


async def test_a_server_that_restarts_fires_no_leader_change_alert(server: InProcessServer) -> None:
    await server.deps.alerts.evaluate()
    again = alert_evaluator_of(server.engine, server.deps.metrics, server.store)  # type: ignore[arg-type]
    await again.evaluate()
    assert again.saved.board.places == {}


async def test_a_server_that_does_not_lead_sends_no_notifications(server: InProcessServer) -> None:
    evaluator = alert_evaluator_of(server.engine, server.deps.metrics, server.store)  # type: ignore[arg-type]
    await server.engine.stop()
    await evaluator.evaluate()
    assert evaluator.saved.board.epoch == 0
    answer = await server.http.get("/alerts")
    assert answer.status_code == 503


async def test_rules_and_channels_survive_a_restart(server: InProcessServer) -> None:
    await server.ask("PUT", "/alerts/wait", {"threshold": 42, "severity": "critical"}, expect=200)
    await server.ask("PUT", "/alerts/wait/silence", {"for": "1h", "reason": "r"}, expect=200)
    await add_channel(server, "https://hooks.example/T0/B0/hush", secret=SECRET)
    again = alert_evaluator_of(server.engine, server.deps.metrics, server.store)  # type: ignore[arg-type]
    await again.open()
    assert again.settings == server.deps.alerts.settings
    shown = await server.ask("GET", "/alerts/wait", expect=200)
    assert (shown["threshold"], shown["severity"], shown["silence"]["reason"]) == (
        42,
        "critical",
        "r",
    )
    shown = await server.ask("DELETE", "/alerts/wait/silence", expect=200)
    assert shown["silence"] is None
    await server.ask("DELETE", "/alerts/wait", expect=204)
    shown = await server.ask("GET", "/alerts/wait", expect=200)
    assert (shown["threshold"], shown["builtin"]) == (600, True)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hush@hooks.example/T0/hush?token=hush",
        "mailto://user:hush@mail.example?to=ops@example.com",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#hush",
    ],
)
async def test_no_address_or_secret_is_ever_shown_again(server: InProcessServer, url: str) -> None:
    made = await add_channel(server, url, secret=SECRET)
    listed = await server.http.get("/alert-channels")
    for text in (json.dumps(made), listed.text, repr(server.deps.alerts.settings)):
        for word in ("hush", SECRET, "T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"):
            assert word not in text
    assert made["signed"]


@pytest.mark.parametrize("url", ["pigeon://hush@coop", "mailto://user:hush@", "slack://hush"])
async def test_an_address_that_is_refused_is_not_in_the_log_either(
    server: InProcessServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await server.http.put("/alert-channels/x", json={"url": url})
    assert answer.status_code == 422
    assert "hush" not in answer.text + caplog.text


async def test_an_apprise_address_gets_a_readable_message(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    """Sends through apprise's own plain-JSON service, on loopback."""
    await add_channel(server, f"json://127.0.0.1:{receiver.port}/in")
    tried = await server.ask("POST", "/alert-channels/ops/test", expect=200)
    assert tried == {"taken": True, "message": "delivered"}
    shown = receiver.documents[0]
    assert shown["title"] == "[Rota] here: test test (info)"
    assert "test notification for the channel 'ops'" in shown["message"]
    receiver.status = 500
    tried = await server.ask("POST", "/alert-channels/ops/test", expect=200)
    assert tried["taken"] is False


async def test_a_chat_gets_a_readable_message(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    """Sends to Mattermost, which takes what Slack takes and can be anywhere."""
    await add_channel(server, f"mmost://127.0.0.1:{receiver.port}/3ccdd113474722377935511fc85d3dd4")
    assert (await server.ask("POST", "/alert-channels/ops/test", expect=200))["taken"]
    path, _, body = receiver.heard[0]
    assert path == "/hooks/3ccdd113474722377935511fc85d3dd4"
    assert "test notification for the channel 'ops'" in json.loads(body)["text"]


async def test_a_mail_is_sent(server: InProcessServer) -> None:
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

    smtp_server = await asyncio.start_server(smtp, "127.0.0.1", 0)
    async with smtp_server:
        port = smtp_server.sockets[0].getsockname()[1]
        query = "from=rota@example.com&to=ops@example.com&mode=insecure"
        await add_channel(server, f"mailto://127.0.0.1:{port}?{query}")
        assert (await server.ask("POST", "/alert-channels/ops/test", expect=200))["taken"]
    # SMTP's words are the same in any case, and Python 3.13 writes them in another than before.
    assert b"rcpt to:<ops@example.com>\r\n" in [line.lower() for line in said]
    assert b"Subject: [Rota] here: test test (info)\r\n" in said


async def test_a_webhook_that_cannot_be_reached_says_so(
    server: InProcessServer, receiver: HttpReceiver
) -> None:
    await receiver.stop()
    await add_channel(server, f"http://127.0.0.1:{receiver.port}/hush")
    tried = await server.ask("POST", "/alert-channels/ops/test", expect=200)
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
    server: InProcessServer, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = await server.http.put(path, json=body)
    assert answer.status_code == status, answer.text
    assert field is None or field in answer.text


async def test_a_channel_that_a_rule_uses_cannot_be_deleted(server: InProcessServer) -> None:
    await add_channel(server, "https://hooks.example/in")
    await server.ask("PUT", "/alerts/wait", {"channels": ["ops"]}, expect=200)
    await server.ask("DELETE", "/alert-channels/ops", expect=409)
    await server.ask("DELETE", "/alerts/wait", expect=204)
    await server.ask("DELETE", "/alert-channels/ops", expect=204)
    await server.ask("DELETE", "/alerts/wait", expect=409)


async def test_the_number_of_channels_is_limited(server: InProcessServer) -> None:
    for n in range(CHANNELS_MAX):
        await add_channel(server, "https://hooks.example/in", f"c{n}")
    answer = await server.http.put("/alert-channels/one-more", json={"url": "https://a.example"})
    assert answer.status_code == 409
