"""`rota verify`: says what it runs, what came of it, and how to have it again."""

from __future__ import annotations

from tests.cli.conftest import Rota
from tests.simtest.mutants import MUTANTS


def test_a_seed_is_run_and_explained(rota: Rota) -> None:
    ran = rota("verify", "--seed", "5", "--profile", "calm", "--minutes", "0.1")
    assert ran.status == 0
    assert "seed 5" in ran.out
    assert "leader_ttl_s" in ran.out
    assert "every promise was kept" in ran.out


def test_many_seeds_come_to_one_line(rota: Rota) -> None:
    ran = rota("verify", "--seeds", "1..2", "--profile", "calm", "--minutes", "0.1")
    assert ran.status == 0
    assert ran.out.startswith("2 seeds, ")
    assert "0 seeds broke a promise" in ran.out


def test_a_broken_promise_is_an_exit_status_a_story_and_a_command(rota: Rota) -> None:
    with MUTANTS["keys forgotten"].planted():
        ran = rota("verify", "--seed", "5", "--profile", "calm", "--minutes", "0.4", "--shrink")
    assert ran.status == 1
    assert "BROKEN accepted_once: twice-" in ran.out
    assert "again: rota verify --seed 5 --profile calm --minutes 0.4 --acts " in ran.out


def test_what_makes_no_sense_is_said(rota: Rota) -> None:
    assert "one of all, servers" in rota("verify", "--seed", "1", "--profile", "nice").err
    assert "such as 1..200" in rota("verify", "--seeds", "many").err
    assert "--seed N, --seeds N..M" in rota("verify").err
    assert "numbers such as 1,4-6" in rota("verify", "--seed", "1", "--acts", "few").err


def test_an_installation_that_is_not_there_is_said_at_once(rota: Rota) -> None:
    ran = rota("verify", "--live", "http://127.0.0.1:9")
    assert ran.status == 1
    assert "no server at http://127.0.0.1:9 (connection refused)" in ran.err
