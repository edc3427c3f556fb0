"""The doctor's findings."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from rota.cli.doctor import clock_checks, disk_checks, inbox_checks, token_checks, version_check
from rota.core.model import Instant
from rota.sdk.discovery import Endpoint, discover
from rota.store.postgres.durability import Checkup
from rota.store.protocol import Durability, DurabilityLevel
from rota.store.sqlite.store import migrate_directory
from tests.cli.conftest import Rota
from tests.sdk.fake_server import TOKEN, SmallServer


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
