"""Jobs in quarantine: shown with the text of their records, and repaired."""

from __future__ import annotations

from typing import Any

from rota.api.limits import QUARANTINE_TEXT_CHARS
from tests.api.in_process_server import NOOP, InProcessServer
from tests.store.conformance_quarantine import REASON, accept, refuse


async def quarantined(server: InProcessServer, **fields: Any) -> str:
    """Submits a job that the tables refuse; returns its id."""
    await refuse(server.store)
    job = {"name": "refused", "task": NOOP, **fields}
    job_id: str = (await server.ask("POST", "/jobs", job, expect=201))["job_id"]
    await server.ask("GET", "/jobs", expect=200)
    return job_id


async def test_a_job_in_quarantine_is_shown_with_the_text_of_its_record(
    server: InProcessServer,
) -> None:
    job_id = await quarantined(server, payload={"invoice": 42})
    page = await server.ask("GET", "/quarantine", expect=200)
    (item,) = page["items"]
    assert (item["job_id"], item["count"], page["next_cursor"]) == (job_id, 1, None)
    assert REASON in item["reason"]
    (write,) = item["writes"]
    assert (write["kind"], write["seq"]) == ("PutJob", item["seq"])
    assert write["fields"]["id"] == job_id
    assert write["fields"]["spec"]["terms"]["name"] == "refused"
    assert write["fields"]["spec"]["payload"] == {"invoice": 42}
    assert write["fields"]["life"]["state"] == "queued"


async def test_long_texts_of_a_record_are_cut(server: InProcessServer) -> None:
    await quarantined(server, payload={"text": "x" * 5_000})
    (item,) = (await server.ask("GET", "/quarantine"))["items"]
    payload = item["writes"][0]["fields"]["spec"]["payload"]
    assert len(payload) < QUARANTINE_TEXT_CHARS + 100
    assert payload.endswith("more characters)")


async def test_a_repaired_job_is_listed_again(server: InProcessServer) -> None:
    job_id = await quarantined(server)
    repair = {"job_ids": [job_id]}
    (failed,) = (await server.ask("POST", "/quarantine/repair", repair, expect=200))["failed"]
    assert failed["job_id"] == job_id
    assert REASON in failed["reason"]
    await accept(server.store)
    answer = await server.ask("POST", "/quarantine/repair", {}, expect=200)
    assert answer == {"repaired": [job_id], "failed": []}
    assert [one["job_id"] for one in (await server.ask("GET", "/jobs"))["items"]] == [job_id]
    assert (await server.ask("GET", "/quarantine"))["items"] == []


async def test_a_repeated_repair_says_that_nothing_is_left(server: InProcessServer) -> None:
    job_id = await quarantined(server)
    await accept(server.store)
    for repaired, failed in (([job_id], 0), ([], 1)):
        answer = await server.ask("POST", "/quarantine/repair", {"job_ids": [job_id]}, expect=200)
        assert (answer["repaired"], len(answer["failed"])) == (repaired, failed)


async def test_a_malformed_repair_is_refused(server: InProcessServer) -> None:
    await server.ask("POST", "/quarantine/repair", {"jobs": []}, expect=422)
    await server.ask("POST", "/quarantine/repair", {"job_ids": ["x"] * 1_001}, expect=422)


async def test_a_list_of_jobs_in_quarantine_has_pages(server: InProcessServer) -> None:
    await refuse(server.store)
    jobs = [{"name": "refused", "task": NOOP} for _ in range(3)]
    job_ids = (await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201))["job_ids"]
    await server.ask("GET", "/jobs")
    first = await server.ask("GET", "/quarantine?limit=2", expect=200)
    rest = await server.ask("GET", f"/quarantine?limit=2&cursor={first['next_cursor']}")
    found = [one["job_id"] for one in (*first["items"], *rest["items"])]
    assert found == sorted(job_ids)
    assert rest["next_cursor"] is None


async def test_the_cluster_warns_of_jobs_in_quarantine(server: InProcessServer) -> None:
    await quarantined(server)
    warnings = (await server.ask("GET", "/cluster", expect=200))["warnings"]
    assert any("1 job is in quarantine" in one for one in warnings)
