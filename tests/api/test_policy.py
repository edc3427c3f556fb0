from __future__ import annotations

from tests.api.in_process_server import InProcessServer


async def test_the_policy_is_shown_and_set_on_top_of_a_preset(server: InProcessServer) -> None:
    shown = (await server.http.request("GET", "/policy")).json()
    assert (shown["order"], shown["backfill"]) == ("fair", "easy")
    body = {"preset": "strict", "half_life": "7d", "max_running": 5}
    answer = await server.http.request("PUT", "/policy", json=body)
    assert answer.status_code == 200
    assert (await server.http.request("GET", "/policy")).json() == answer.json()
    assert answer.json()["order"] == "priority"
    assert answer.json()["half_life"] == 7 * 86400
    assert answer.json()["max_running"] == 5


async def test_an_invalid_policy_is_refused(server: InProcessServer) -> None:
    for body in ({"order": "random"}, {"beta": -1}, {"half_life": "1s"}, {"unknown": 1}):
        answer = await server.http.request("PUT", "/policy", json=body)
        assert answer.status_code == 422, body


async def test_a_tenant_shows_weight_quota_and_usage(
    server: InProcessServer,
) -> None:
    spec = {"weight": 2, "quota": {"running": 1, "cpu": 1.5, "memory": "1GiB"}}
    answer = await server.http.request("PUT", "/tenants/acme", json=spec)
    assert answer.status_code == 200
    shown = (await server.http.request("GET", "/tenants/acme")).json()
    assert shown["weight"] == 2
    assert shown["quota"] == {"running": 1, "queued": None, "cpu": 1.5, "memory": 1 << 30}
    await server.start(await server.register(), tenant="acme")
    shown = (await server.http.request("GET", "/tenants/acme")).json()
    assert shown["depth"]["running"] == 1
    assert shown["share"] > 0
    assert [
        one["name"] for one in (await server.http.request("GET", "/tenants")).json()["items"]
    ] == ["acme"]
    assert (await server.http.request("GET", "/tenants/nobody")).status_code == 404


async def test_a_submission_over_the_quota_is_refused_with_the_limit(
    server: InProcessServer,
) -> None:
    await server.http.request("PUT", "/tenants/acme", json={"quota": {"queued": 2}})
    job = {"name": "a", "task": {"kind": "noop"}, "tenant": "acme"}
    many = {"jobs": [job, job, job]}
    for _ in range(2):
        assert (await server.http.request("POST", "/jobs", json=job)).status_code == 201
    for path, body in (("/jobs", job), ("/jobs/batch", many)):
        refused = await server.http.request("POST", path, json=body)
        assert refused.status_code == 429
        assert refused.json()["type"].endswith("over_quota")
        assert "2 waiting jobs of at most 2" in refused.json()["detail"]
        assert "Retry-After" in refused.headers
    other = {**job, "tenant": "other"}
    assert (await server.http.request("POST", "/jobs", json=other)).status_code == 201
