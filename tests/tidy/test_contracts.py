"""The import contracts hold, and a tree that breaks one is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, SOURCE


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contracts of `root/pyproject.toml` over `root/src`."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_point_down() -> None:
    run = lint_imports(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/model.py", "import time", "The core is pure"),
        ("core/model.py", "import rota.store", "Imports only point down"),
        ("wire/jobs.py", "import rota.core.model", "The public contract does not know the inside"),
        (
            "gateway/config.py",
            "import rota.core.model",
            "A gateway knows cells by their public contract only",
        ),
        ("api/__init__.py", "import rota.core.scheduler", "Only the engine steps the scheduler"),
        ("leftovers.py", '"""A package that nobody declared."""', "Imports only point down"),
        ("core/model.py", "import rota.core.state", "Inside the core"),
        ("core/leftovers.py", '"""A module in no layer."""', "Inside the core"),
        ("store/protocol.py", "import rota.store.sqlite.store", "Inside the store"),
        (
            "store/postgres/connect.py",
            "import rota.store.postgres.journal_store",
            "Inside the store on PostgreSQL",
        ),
        ("api/problems.py", "import rota.api.app", "Inside the api"),
        ("cli/render.py", "import rota.cli.start.serve", "Inside the command line"),
        ("sdk/calls.py", "import rota.sdk.client", "Inside the sdk"),
    ],
)
def test_a_tree_that_breaks_a_contract_is_caught(
    tmp_path: Path, module: str, line: str, contract: str
) -> None:
    shutil.copytree(SOURCE, tmp_path / "src" / "rota")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src" / "rota" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    run = lint_imports(tmp_path)
    assert run.returncode == 1
    assert f"{contract} BROKEN" in run.stdout, run.stdout + run.stderr
