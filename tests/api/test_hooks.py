"""Webhooks: signed messages from senders without a token become events, once."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import httpx2
import pytest

from rota.engine.clock import SystemClock
from tests.api.in_process_server import HOST, NOOP, InProcessServer

SECRET = "a-secret-of-32-characters-or-so!"
BODY = {"action": "opened", "number": 7}


def signed(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def stamped(body: bytes, at_s: int | None = None, secret: str = SECRET) -> str:
    stamp = SystemClock().now() // 1000 if at_s is None else at_s
    return f"t={stamp},v1={signed(f'{stamp}.'.encode() + body, secret)}"


async def deliver(
    server: InProcessServer, name: str, raw: bytes, headers: dict[str, str]
) -> httpx2.Response:
    """Sends a webhook without a token."""
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as stranger:
        return await stranger.post(f"/hooks/{name}", content=raw, headers=headers)


async def hook(server: InProcessServer, name: str, scheme: str, **more: Any) -> dict[str, Any]:
    body = {"scheme": scheme, "secrets": [SECRET], **more}
    answer: dict[str, Any] = await server.ask("PUT", f"/hooks/{name}", body, expect=201)
    return answer


async def trigger(server: InProcessServer, kind: str) -> str:
    body = {"name": kind, "event": kind, "job": {"name": "j", "task": NOOP}}
    return str((await server.ask("POST", "/triggers", body, expect=201))["trigger_id"])


async def fired(server: InProcessServer, trigger_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await server.ask("GET", f"/triggers/{trigger_id}/events"))[
        "items"
    ]
    return items


async def test_a_webhook_signed_like_github_creates_a_job(server: InProcessServer) -> None:
    await hook(server, "code", "github")
    trigger_id = await trigger(server, "github.pull_request")
    raw = json.dumps(BODY).encode()
    headers = {"X-Hub-Signature-256": f"sha256={signed(raw)}", "X-GitHub-Event": "pull_request"}
    answer = await deliver(server, "code", raw, headers)
    assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
    (line,) = await fired(server, trigger_id)
    assert (line["source"], line["outcome"]) == ("/hooks/code", "fired")


async def test_a_replay_has_no_effect_even_with_other_headers(server: InProcessServer) -> None:
    await hook(server, "code", "github")
    trigger_id = await trigger(server, "github.*")
    raw = json.dumps(BODY).encode()
    for kind, delivery in (("push", "1"), ("release", "2")):
        headers = {
            "X-Hub-Signature-256": f"sha256={signed(raw)}",
            "X-GitHub-Event": kind,
            "X-GitHub-Delivery": delivery,
        }
        await deliver(server, "code", raw, headers)
    assert len(await fired(server, trigger_id)) == 1


async def test_a_webhook_signed_like_stripe_creates_a_job(server: InProcessServer) -> None:
    await hook(server, "pay", "stripe")
    trigger_id = await trigger(server, "stripe.invoice.paid")
    raw = json.dumps({"id": "evt_1", "type": "invoice.paid"}).encode()
    answer = await deliver(server, "pay", raw, {"Stripe-Signature": stamped(raw)})
    assert answer.status_code == 202, answer.text
    again = await deliver(server, "pay", raw, {"Stripe-Signature": stamped(raw)})
    assert again.json() == {"status": "repeated"}
    (line,) = await fired(server, trigger_id)
    assert line["event_id"] == "evt_1"


async def test_an_event_of_another_cell_keeps_its_attributes(server: InProcessServer) -> None:
    await hook(server, "berlin", "rota")
    trigger_id = await trigger(server, "webhook.berlin.rota.job.failed")
    body = {"id": "42.0", "source": "rota", "type": "rota.job.failed", "data": {"job_id": "x"}}
    raw = json.dumps(body).encode()
    answer = await deliver(server, "berlin", raw, {"Rota-Signature": stamped(raw)})
    assert answer.status_code == 202, answer.text
    assert len(await fired(server, trigger_id)) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha256="},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": "sha1=" + "0" * 40},
        {"Authorization": "Bearer nonsense"},
    ],
)
async def test_an_unsigned_webhook_is_refused(
    server: InProcessServer, headers: dict[str, str]
) -> None:
    await hook(server, "code", "github")
    answer = await deliver(server, "code", b"{}", headers)
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:rota:problem:bad_signature")
    assert (await server.ask("GET", "/events"))["items"] == []


async def test_a_signature_of_another_body_or_secret_is_refused(server: InProcessServer) -> None:
    await hook(server, "code", "github")
    for signature in (signed(b"{}"), signed(b'{"a":1}', "another-secret-that-is-wrong")):
        headers = {"X-Hub-Signature-256": f"sha256={signature}"}
        assert (await deliver(server, "code", b'{"a":1}', headers)).status_code == 401


@pytest.mark.parametrize("off_s", [-3600, 3600])
async def test_an_old_signature_is_refused(server: InProcessServer, off_s: int) -> None:
    await hook(server, "pay", "stripe")
    at_s = SystemClock().now() // 1000 + off_s
    answer = await deliver(server, "pay", b"{}", {"Stripe-Signature": stamped(b"{}", at_s)})
    assert answer.status_code == 401
    assert "a replay, or one of the clocks" in answer.json()["detail"]


@pytest.mark.parametrize("header", ["t=,v1=x", "t=abc,v1=x", "v1=x", "t=99999999999999,v1=x", ","])
async def test_an_invalid_signature_header_is_refused(server: InProcessServer, header: str) -> None:
    await hook(server, "pay", "stripe")
    assert (await deliver(server, "pay", b"{}", {"Stripe-Signature": header})).status_code == 401


async def test_a_secret_can_be_replaced_without_a_gap(server: InProcessServer) -> None:
    await hook(server, "code", "github")
    new = "the-new-secret-that-comes-next"
    await server.ask(
        "PUT", "/hooks/code", {"scheme": "github", "secrets": [SECRET, new]}, expect=200
    )
    for number, secret in enumerate((SECRET, new)):
        raw = json.dumps({"n": number}).encode()
        headers = {"X-Hub-Signature-256": f"sha256={signed(raw, secret)}"}
        assert (await deliver(server, "code", raw, headers)).status_code == 202


async def test_secrets_are_never_shown_again(server: InProcessServer) -> None:
    made = await server.ask("PUT", "/hooks/code", {"scheme": "github"}, expect=201)
    assert len(made["secret"]) >= 32
    await hook(server, "pay", "stripe")
    shown = await server.ask("GET", "/hooks/code", expect=200)
    assert ("secret" in shown, shown["secrets"]) == (False, 1)
    listed = json.dumps(await server.ask("GET", "/hooks", expect=200))
    assert made["secret"] not in listed
    assert SECRET not in listed
    assert SECRET not in repr(await server.store.hooks.get("pay"))
    journal = b"".join(
        body for (body,) in server.store.journal.connection.execute("SELECT body FROM journal")
    )
    assert SECRET.encode() not in journal
    raw = b"{}"
    headers = {"X-Hub-Signature-256": f"sha256={signed(raw, made['secret'])}"}
    assert (await deliver(server, "code", raw, headers)).status_code == 202


async def test_endpoints_are_set_up_by_those_with_a_token_only(server: InProcessServer) -> None:
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as stranger:
        assert (await stranger.put("/hooks/x", json={"scheme": "github"})).status_code == 401
        assert (await stranger.get("/hooks/x")).status_code == 401
        assert (await stranger.get("/hooks")).status_code == 401
        assert (await stranger.post("/hooks/x", json={})).status_code == 404


async def test_bad_endpoints_are_refused(server: InProcessServer) -> None:
    for body in ({"scheme": "none"}, {"scheme": "github", "secrets": ["short"]}, {}):
        await server.ask("PUT", "/hooks/x", body, expect=422)
    await server.ask("DELETE", "/hooks/x", expect=404)
    await hook(server, "x", "github")
    await server.ask("DELETE", "/hooks/x", expect=204)
    await server.ask("GET", "/hooks/x", expect=404)


async def test_a_signed_message_that_is_no_json_or_too_large_is_refused(
    server: InProcessServer,
) -> None:
    await hook(server, "code", "github")
    for raw, status in ((b"a=1", 400), (b"[]", 422), (b"x" * 1_100_000, 413)):
        headers = {"X-Hub-Signature-256": f"sha256={signed(raw)}"}
        assert (await deliver(server, "code", raw, headers)).status_code == status
