"""`rota triggers`, `rota events` and `rota hooks` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Rota

pytestmark = pytest.mark.usefixtures("at_real_server")


def test_a_trigger_is_made_shown_tried_paused_and_removed(rota: Rota) -> None:
    made = rota(
        *("triggers", "create", "scan", "--on", "object.*", "--where", "data.size > 10"),
        *("--rate", "5/1m", "--queue", "files", "--", "./scan.sh", "{{event.data.name}}"),
    )
    assert made.status == 0, made.err
    assert "data.size > 10" in made.out
    assert "5 jobs in 1m" in made.out
    assert "scan" in rota("triggers").out
    tried = rota("triggers", "test", '{"type": "object.x", "data": {"size": 1}}')
    assert "filtered" in tried.out
    rota("events", "send", "object.x", '{"size": 1}')
    shown = rota("triggers", "show", "scan")
    assert "the filter did not let it pass" in shown.out
    assert rota("triggers", "show", "scan", "--json").json["events"][0]["outcome"] == "filtered"
    assert "paused" in rota("triggers", "pause", "scan").out
    assert "active" in rota("triggers", "resume", "scan").out
    changed = rota("triggers", "update", "scan", '{"filter": null, "batch": 10}')
    assert "10 events, or what came in 10s" in changed.out
    trigger_id = rota("triggers", "--json").json["items"][0]["trigger_id"]
    assert rota("triggers", "delete", trigger_id[-8:], "-y").out == "removed scan\n"
    assert "no triggers yet" in rota("triggers").err


def test_a_trigger_from_a_file(rota: Rota, tmp_path: Path) -> None:
    spec = {"event": "a.b", "debounce": "5s", "job": {"name": "j", "task": {"kind": "noop"}}}
    (tmp_path / "t.json").write_text(json.dumps(spec))
    made = rota("triggers", "create", "t", "--from", f"@{tmp_path}/t.json")
    assert "until quiet for 5s, keeps last" in made.out


def test_an_event_is_sent_and_listed(rota: Rota) -> None:
    rota("triggers", "create", "all", "--on", "*", "--noop")
    sent = rota("events", "send", "order.paid", '{"n": 1}', "--id", "42", "--source", "/shop")
    assert "fired" in sent.out
    again = rota("events", "send", "order.paid", "--id", "42", "--source", "/shop")
    assert "42 is a duplicate and has no effect" in again.out
    assert "order.paid" in rota("events").out
    (one,) = rota("events", "--type", "order.paid", "--json").json["items"]
    assert (one["repeats"], len(one["job_ids"])) == (1, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("triggers", "create", "x", "--", "true"), "name the events"),
        (("triggers", "create", "x", "--on", "a", "--where", "f(", "--noop"), "no function 'f'"),
        (("triggers", "create", "x", "--on", "a", "--rate", "fast", "--noop"), "10/1m"),
        (("triggers", "show", "nobody"), "there is no trigger 'nobody'"),
        (("triggers", "test", "[]"), "must be an object"),
        (("events", "send", "rota.x"), "server's own"),
        (("events", "send", "a.b", "--id", ""), "id: a text of 1 to"),
        (("events", "listen", "--config", "nowhere.toml"), "cannot read nowhere.toml"),
        (("hooks", "delete", "nobody"), "nobody"),
    ],
)
def test_an_error_is_one_clear_line(rota: Rota, args: tuple[str, ...], message: str) -> None:
    ran = rota(*args)
    assert ran.status != 0
    assert message in ran.err


def test_an_empty_name_means_no_trigger_however_few_there_are(rota: Rota) -> None:
    assert rota("triggers", "create", "lone", "--on", "lone.event", "--noop").status == 0
    ran = rota("triggers", "delete", "", "-y")
    assert (ran.status, "there is no trigger ''" in ran.err) == (1, True)
    assert rota("triggers", "show", "lone").status == 0


def test_a_webhook_endpoint_is_set_up_and_removed(rota: Rota) -> None:
    made = rota("hooks", "set", "code", "--scheme", "github", "--tolerance", "1m")
    assert "secret: " in made.out
    assert "/hooks/code" in rota("hooks").out
    kept = rota("hooks", "set", "pay", "--scheme", "stripe", "--secret", "0123456789abcdef")
    assert "secret" not in kept.out
    assert rota("hooks", "delete", "code").out == "removed code\n"
    assert [one["name"] for one in rota("hooks", "--json").json["items"]] == ["pay"]


def test_a_file_of_sources_can_be_checked(rota: Rota, tmp_path: Path) -> None:
    path = tmp_path / "events.toml"
    path.write_text("[[source]]\nkind = 'folder'\nname = 'in'\npath = '.'\n")
    assert rota("events", "listen", "-c", str(path), "--check").out == "1 sources and 0 sinks\n"
