"""The doctor's findings."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from rota.cli.doctor import (
    clock_checks,
    disk_checks,
    inbox_checks,
    loss_checks,
    ready_checks,
    token_checks,
    version_check,
)
from rota.core.model import Instant
from rota.sdk import Client, UnavailableError
from rota.sdk.discovery import Endpoint, discover
from rota.store.postgres.durability import Checkup
from rota.store.protocol import Durability, DurabilityLevel
from rota.store.sqlite.store import migrate_directory
from rota.wire.problems import Problem
from rota.wire.quarantine import QuarantinedJobView, QuarantinedWriteView
from tests.cli.conftest import Rota
from tests.sdk.fake_server import TOKEN, SmallServer
from tests.stand_in import stand_in

JOB_ID = "019a85bf-2222-7333-8444-955566677788"


def verdicts(found: list[dict[str, str]]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in found}


def test_every_check_passes_with_a_server_and_a_worker(server: SmallServer, rota: Rota) -> None:
    server.add_worker("box-1")
    ran = rota("doctor", "--json")
    assert ran.status == 0
    assert set(verdicts(ran.json["checks"]).values()) == {"ok"}
    assert set(verdicts(ran.json["checks"])) >= {"server", "ready", "token", "clock", "workers"}


def test_a_server_without_workers_is_told_how_to_get_one(server: SmallServer, rota: Rota) -> None:
    ran = rota("doctor")
    assert ran.status == 0
    assert f"Fix: rota worker --server {server.url}" in ran.out


def test_a_missing_server_is_a_failure_with_a_fix(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:9")
    ran = rota("doctor")
    assert ran.status == 1
    assert "Fix: rota up" in ran.out


def test_a_refused_token_is_a_failure(
    server: SmallServer, rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", "wrong")
    ran = rota("doctor", "--json")
    assert ran.status == 1
    assert verdicts(ran.json["checks"])["access"] == "fail"


def test_a_token_that_others_can_read_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / ".rota/local.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"url": "http://127.0.0.1:7070", "token": TOKEN}))
    for mode, worst in ((0o600, "ok"), (0o644, "fail")):
        path.chmod(mode)
        checks = list(token_checks(discover(environ={"HOME": str(tmp_path)}, folder=tmp_path)))
        assert checks[-1].verdict == worst


def test_clocks_that_disagree_are_a_warning() -> None:
    date = {"date": "Thu, 09 Oct 2025 08:53:20 GMT"}
    assert [check.verdict for check in clock_checks(date, 1_760_000_000_900)] == ["ok"]
    assert [check.verdict for check in clock_checks(date, 1_760_000_090_000)] == ["warn"]
    assert list(clock_checks({}, 0)) == []


def test_versions_that_differ_are_a_warning() -> None:
    assert version_check("99.0").verdict == "warn"


def test_free_disk_space_is_shown_for_a_data_folder_on_this_machine(tmp_path: Path) -> None:
    here = Endpoint("http://127.0.0.1:7070", None, "", None, (), str(tmp_path))
    assert [check.name for check in disk_checks(here)] == ["disk"]
    away = Endpoint("http://127.0.0.1:7070", None, "", None, (), None)
    assert list(disk_checks(away)) == []


def test_a_server_that_is_not_ready_is_not_taken_for_one_that_refuses_the_token(
    server: SmallServer, rota: Rota
) -> None:
    server.faults = [200, *[503] * 20]
    ran = rota("doctor", "--json")
    assert ran.status == 1
    found = verdicts(ran.json["checks"])
    assert found["ready"] == "fail"
    assert "access" not in found


def test_submissions_that_were_set_aside_are_a_warning_with_the_newest_reason() -> None:
    durability = Durability(DurabilityLevel.SINGLE)
    clean = Checkup("PostgreSQL at db", "15.1", durability, clock=Instant(0), missing=())
    assert list(inbox_checks(clean)) == []
    found = replace(clean, set_aside=2, set_aside_reason="payload: " + "x" * 500)
    (check,) = inbox_checks(found)
    assert check.verdict == "warn"
    assert check.found.startswith("2 submissions set aside, the newest because: payload: xxx")
    assert len(check.found) < 300


def test_damaged_files_of_a_data_folder_are_named(rota: Rota, tmp_path: Path) -> None:
    data = tmp_path / "data"
    migrate_directory(data)
    ran = rota("doctor", "--data", str(data), "--json")
    assert (ran.status, verdicts(ran.json["checks"])) == (0, {"files": "ok"})
    connection = apsw.Connection(str(data / "rota.db"))
    connection.execute("INSERT INTO queues VALUES ('bulk', x'00'), ('fast', x'01')")
    connection.close()
    ran = rota("doctor", "--data", str(data), "--json")
    assert ran.status == 1
    found = [check["found"] for check in ran.json["checks"]]
    assert [line.partition(":")[0] for line in found] == [
        "the stored queue bulk is damaged", "the stored queue fast is damaged",
    ]  # fmt: skip
    (data / "rota.db").unlink()
    (data / "logs.db").unlink()
    assert rota("doctor", "--data", str(data)).status == 1


def quarantined(reason: str = "the tables refuse it") -> QuarantinedJobView:
    write = QuarantinedWriteView(7, 120, "PutJob", {"id": JOB_ID, "name": "invoice"})
    return QuarantinedJobView(JOB_ID, 7, "2026-11-15T10:00:00.000Z", reason, 1, [write])


def test_a_job_in_quarantine_is_a_warning_with_the_text_of_its_record(
    server: SmallServer, rota: Rota
) -> None:
    server.add_worker("box-1")
    server.quarantine.append(quarantined())
    ran = rota("doctor")
    assert ran.status == 0
    assert f"job {JOB_ID} is in quarantine since record 7" in ran.out
    assert "the tables refuse it" in ran.out
    assert 'PutJob {"id": ' in ran.out
    assert "Fix: remove the cause, then rota doctor --repair" in ran.out


def test_a_repair_says_what_came_of_it(server: SmallServer, rota: Rota) -> None:
    server.quarantine += [quarantined(""), quarantined()]
    ran = rota("doctor", "--repair", "--json")
    assert ran.status == 1
    repairs = [one for one in ran.json["checks"] if one["name"] == "repair"]
    assert [one["verdict"] for one in repairs] == ["ok", "fail"]
    assert "is in the tables again" in repairs[0]["found"]
    assert "stays in quarantine: the tables refuse it" in repairs[1]["found"]
    server.quarantine.clear()
    assert "there was nothing to repair" in rota("doctor", "--repair").out


def test_each_reason_why_a_server_is_not_ready_is_a_failure() -> None:
    def fail() -> None:
        raise UnavailableError(Problem("", "", 503, "not ready: a; b", reasons=["a", "b"]))

    with Client(Endpoint("http://127.0.0.1:7070", None, "", None, (), None)) as client:
        checks = list(ready_checks(stand_in(client, ready=fail)))
    assert [(one.verdict, one.found) for one in checks] == [("fail", "a"), ("fail", "b")]


def test_losses_of_records_are_shown() -> None:
    assert list(loss_checks(0, 0)) == []
    (check,) = loss_checks(8, 2)
    assert check.found == "2 failovers of the database lost 8 records of the journal so far"
