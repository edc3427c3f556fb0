"""`rota alerts` against a real server."""

from __future__ import annotations

import io
import json

import pytest

from tests.cli.conftest import Rota

pytestmark = pytest.mark.usefixtures("at_real_server")


def test_a_rule_is_made_changed_silenced_and_removed(rota: Rota) -> None:
    made = rota(
        *("alerts", "set", "gpu-wait", "--condition", "wait", "--queue", "gpu"),
        *("--threshold", "1800", "--for", "5m", "--severity", "critical"),
    )
    assert made.status == 0, made.err
    assert "1800 s" in made.out
    changed = rota("alerts", "set", "gpu-wait", "--threshold", "900", "--json").json
    assert (changed["threshold"], changed["queue"], changed["for"]) == (900, "gpu", 300)
    assert rota("alerts", "set", "gpu-wait", "--off", "--json").json["status"] == "off"
    assert rota("alerts", "silence", "gpu-wait", "--for", "2h", "--reason", "new boxes").status == 0
    assert "new boxes" in rota("alerts", "show", "gpu-wait").out
    assert "gpu-wait" in rota("alerts").out
    assert rota("alerts", "unsilence", "gpu-wait", "--json").json["silence"] is None
    assert rota("alerts", "reset", "gpu-wait").status == 0
    assert "gpu-wait" not in rota("alerts", "list").out
    assert rota("alerts", "--json").out == rota("alerts", "list", "--json").out
    assert rota("alerts", "set", "gpu-wait", "--threshold", "1").status != 0


def test_values_of_alerts_are_shown_with_their_units(rota: Rota) -> None:
    rows = {line.split()[0]: line for line in rota("alerts").out.splitlines()}
    assert " 1 job " in rows["dead_letters"]
    assert " 20% " in rows["failure_rate"]
    assert " 10 s " in rows["tables_behind"]
    assert "at once" in rota("alerts", "show", "dead_letters").out


def test_a_channel_is_set_up_and_tried_and_its_address_not_shown(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_ALERT_URL", "http://127.0.0.1:9/hush")
    made = rota("alerts", "channels", "set", "ops", "--severity", "warning")
    assert made.status == 0, made.err
    listed = rota("alerts", "channels")
    assert "http://127.0.0.1:9/…" in listed.out
    assert "hush" not in made.out + listed.out
    tried = rota("alerts", "test", "ops")
    assert tried.status == 1
    assert "cannot be reached" in tried.out
    assert rota("alerts", "channels", "delete", "ops").status == 0


def test_an_address_may_be_piped_in_and_is_not_waited_for_where_nobody_is(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    unsaid = rota("alerts", "channels", "set", "ops")
    assert unsaid.status == 2
    assert unsaid.err.splitlines()[-1].endswith("give --url, or set ROTA_ALERT_URL")
    monkeypatch.setattr("sys.stdin", io.StringIO("http://127.0.0.1:9/hush\n"))
    piped = rota("alerts", "channels", "set", "ops")
    assert piped.status == 0, piped.err
    assert piped.err == ""
    assert rota("alerts", "channels", "delete", "ops").status == 0


def test_an_empty_address_is_refused_and_what_is_piped_in_is_left_to_others(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = io.StringIO("http://127.0.0.1:9/other\n")
    monkeypatch.setattr("sys.stdin", others)
    assert rota("alerts", "channels", "set", "ops", "--url", "").status == 1
    assert others.read() == "http://127.0.0.1:9/other\n"


def test_without_any_stdin_nobody_is_asked_for_an_address(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert rota("alerts", "channels", "set", "ops").status == 2


def test_bytes_are_shown_in_suitable_units(rota: Rota) -> None:
    listed = rota("alerts").out
    assert "1 GiB" in listed
    assert "e+09" not in listed


def test_a_change_without_settings_is_refused_before_a_server_is_asked(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:9")
    refused = rota("alerts", "set", "wait")
    assert refused.status == 2
    assert "name what to change" in refused.err


def test_the_files_for_prometheus_and_grafana_need_no_server(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:9")
    assert "alert: RotaDeadLetters" in rota("alerts", "rules").out
    assert json.loads(rota("alerts", "dashboard").out)["uid"] == "rota-overview"
