"""`rota schedules`, `rota cron` and `rota calendars`, against a real server on a socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk import Client
from tests.api.in_process_server import TOKEN
from tests.cli.conftest import Rota


@pytest.fixture(autouse=True)
def _none_left(url: str, at_real_server: None) -> Iterator[None]:
    yield
    with Client(url, TOKEN) as client:
        for one in client.schedules():
            client.delete_schedule(one.schedule_id)


def make(rota: Rota, name: str = "nightly", *options: str) -> str:
    when = () if any(o in ("--every", "--cron") for o in options) else ("--cron", "30 2 * * *")
    ran = rota("schedules", "create", name, *when, *options, "--json", "--", "./report.sh")
    assert ran.status == 0, ran.err
    return str(ran.json["schedule_id"])


def test_a_schedule_is_made_listed_and_shown(rota: Rota) -> None:
    make(rota, "nightly", "--tz", "America/New_York", "--overlap", "skip", "--gap", "shift")
    listed = rota("schedules").out
    assert "nightly" in listed
    assert "30 2 * * *" in listed
    shown = rota("schedules", "show", "nightly").out
    assert "gap: shift; overlap: first" in shown
    assert "./report.sh" in shown
    assert "America/New_York" in shown


def test_no_schedules_and_an_unknown_one_are_said(rota: Rota) -> None:
    assert "no schedules yet" in rota("schedules").err
    ran = rota("schedules", "show", "nobody")
    assert ran.status == 1
    assert "there is no schedule 'nobody'" in ran.err


def test_the_ledger_says_why_a_run_was_left_out(rota: Rota, url: str) -> None:
    make(rota, "often", "--cron", "* * * * * *")
    assert rota("schedules", "pause", "often").status == 0
    with Client(url, TOKEN) as client:
        (schedule,) = client.schedules(name="often")
        while not any(
            one.reason == "paused" for one in client.occurrences(schedule.schedule_id).items
        ):
            client.state.clock.sleep(0.05)
    shown = rota("schedules", "show", "often", "-o", "skipped").out
    assert "the schedule was paused" in shown
    assert "paused: they will be skipped" in shown
    assert rota("schedules", "resume", "often").status == 0


def test_a_run_now_prints_its_job(rota: Rota) -> None:
    make(rota)
    job = rota("schedules", "trigger", "nightly").out.strip()
    assert rota("show", job).status == 0


def test_a_backfill_is_shown_before_it_is_run(rota: Rota) -> None:
    make(rota)
    span = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-03T23:00Z")
    dry = rota("schedules", "backfill", "nightly", *span, "--dry-run")
    assert dry.out.count("2026-01-0") >= 3
    assert "There is no terminal to ask on" in rota("schedules", "backfill", "nightly", *span).err
    done = rota("schedules", "backfill", "nightly", *span, "-y")
    assert "3 jobs" in done.out
    backfill_id = done.out.rpartition("backfill ")[2].partition(":")[0]
    cancelled = rota("schedules", "backfill", "nightly", "--cancel", backfill_id)
    assert "cancelled 3 jobs" in cancelled.out
    nothing = rota("schedules", "backfill", "nightly", "--cancel", backfill_id)
    assert nothing.out == "cancelled 0 jobs\n"
    assert "has jobs left" in nothing.err
    printed = rota("schedules", "backfill", "nightly", "--cancel", backfill_id, "--json")
    assert printed.json == {"count": 0}
    again = rota("schedules", "backfill", "nightly", *span, "-y", "--json")
    assert (again.json["count"], again.json["already"]) == (0, 3)


def test_a_schedule_is_changed_previewed_and_removed(rota: Rota) -> None:
    identity = make(rota)
    changed = rota("schedules", "update", "nightly", "--every", "15m", "--json").json
    assert (changed["cron"], changed["interval"]) == (None, 900)
    assert rota("schedules", "update", "nightly").status == 2
    patched = rota("schedules", "update", identity[-8:], "--patch", '{"job": {"priority": 9}}')
    assert patched.status == 0
    preview = rota("schedules", "preview", "nightly", "--count", "2", "--json").json
    assert len(preview["items"]) == 2
    for more in ((), ("--json",)):
        refused = rota("schedules", "delete", "nightly", *more)
        assert refused.status == 1
        assert "There is no terminal to ask on: add --yes" in refused.err
    assert rota("schedules", "delete", "nightly", "-y").out == "removed nightly\n"


def test_a_refusal_is_one_line_that_says_what_is_wrong(rota: Rota) -> None:
    ran = rota("schedules", "create", "never", "--cron", "0 0 30 2 *", "--", "true")
    assert ran.status == 1
    assert ran.err == "rota: '0 0 30 2 *' never comes: FEB has no day 30\n"


def test_a_job_may_come_as_json(rota: Rota) -> None:
    job = '{"name": "bill", "task": {"kind": "noop"}, "labels": {"team": "a"}}'
    ran = rota("schedules", "create", "j", "--every", "1h", "--job", job, "-q", "video", "--json")
    assert ran.json["job"]["labels"] == {"team": "a"}
    assert (ran.json["job"]["queue"], ran.json["job"]["name"]) == ("video", "bill")


def test_an_app_is_deployed_from_its_module(
    rota: Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_jobs.py").write_text(
        "from rota import App\napp = App()\n@app.cron('@daily')\ndef clean() -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert rota("schedules", "deploy", "shop_jobs:app").out == "created   clean\n"
    assert rota("schedules", "deploy", "shop_jobs:app").out == "unchanged clean\n"
    assert "is no rota.App" in rota("schedules", "deploy", "shop_jobs:nothing").err
    assert "cannot load" in rota("schedules", "deploy", "no_such_module:app").err


def test_cron_prints_instants_and_marks_clock_changes_without_a_server(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")
    ran = rota("cron", "30 2 * * *", "--tz", "America/New_York", "--after", "2026-03-07T00:00Z")
    lines = ran.out.splitlines()
    assert lines[2].startswith("Sun 2026-03-08 03:00:00 -04:00  2026-03-08T07:00:00Z")
    assert "clock moved forward 1 h" in lines[2]
    assert len(lines) == 11
    both = rota(
        "cron", "30 1 * * *", "--tz", "America/New_York", "--after", "2026-11-01T00:00Z",
        "--fold", "both", "-n", "2", "--json",
    )  # fmt: skip
    ats = [one["at"] for one in both.json["items"]]
    assert ats == ["2026-11-01T05:30:00.000Z", "2026-11-01T06:30:00.000Z"]


def test_cron_says_what_is_wrong(rota: Rota) -> None:
    assert "step of 0" in rota("cron", "*/0 * * * *").err
    ran = rota("cron", "@daily", "--tz", "Europe/Berlim")
    assert ran.err == "rota: there is no time zone 'Europe/Berlim'. Did you mean Europe/Berlin?\n"


def test_calendars_are_set_from_words_or_a_file(rota: Rota, tmp_path: Path) -> None:
    file = tmp_path / "days"
    file.write_text("2026-12-25  # christmas\n\n2026-12-26\n")
    assert "2026-12-25 Fri" in rota("calendars", "set", "de", "--from", str(file)).out
    assert rota("calendars", "--json").json["items"][0]["name"] == "de"
    assert rota("calendars", "show", "de").out.count("2026-12") == 2
    assert rota("calendars", "set", "de").status == 2
    assert rota("calendars", "delete", "de", "--json").json == {"name": "de", "deleted": True}
    assert "no calendars yet" in rota("calendars").err


def test_a_schedule_that_runs_nothing_is_refused_in_words_that_fit_it(rota: Rota) -> None:
    ran = rota("schedules", "create", "nightly", "--cron", "@daily")
    assert ran.status == 2
    assert "name what to run: -- COMMAND" in ran.err
    assert "rota submit" not in ran.err


@pytest.mark.parametrize("word", ["delete", "pause", "trigger"])
def test_an_empty_name_does_not_mean_the_only_schedule(rota: Rota, word: str) -> None:
    make(rota)
    ran = rota("schedules", word, "", *(("-y",) if word == "delete" else ()))
    assert ran.status == 1
    assert "there is no schedule ''" in ran.err
    assert "active" in rota("schedules").out
