"""`rota verify`: says what it runs, what came of it, and how to have it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import rota as package
from tests.cli.conftest import Rota
from tests.simtest.mutants import MUTANTS


def test_a_seed_is_run_and_explained(rota: Rota) -> None:
    ran = rota("verify", "--seed", "5", "--profile", "calm", "--minutes", "0.1")
    assert ran.status == 0
    assert "seed 5" in ran.out
    assert "leader_ttl_s" in ran.out
    assert "every promise was kept" in ran.out


def test_many_seeds_are_summed_up_in_one_line(rota: Rota) -> None:
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


def test_a_wrong_option_is_explained(rota: Rota) -> None:
    assert "one of all, servers" in rota("verify", "--seed", "1", "--profile", "nice").err
    assert "such as 1..200" in rota("verify", "--seeds", "many").err
    assert "--seed N, --seeds N..M" in rota("verify").err
    assert "numbers such as 1,4-6" in rota("verify", "--seed", "1", "--acts", "few").err


def test_an_unreachable_installation_is_reported_at_once(rota: Rota) -> None:
    ran = rota("verify", "--live", "http://127.0.0.1:9")
    assert ran.status == 1
    assert "no server at http://127.0.0.1:9 (connection refused)" in ran.err


def test_a_package_without_the_repository_names_where_seeds_run(tmp_path: Path) -> None:
    assert package.__file__ is not None
    ignored = shutil.ignore_patterns("static", "__pycache__")
    shutil.copytree(Path(package.__file__).parent, tmp_path / "site" / "rota", ignore=ignored)
    ran = subprocess.run(
        [sys.executable, "-m", "rota", "verify", "--seed", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "seeds need Rota's repository" in ran.stderr
    assert "--live URL" in ran.stderr
