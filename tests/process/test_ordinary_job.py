from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADING = "## The way of an ordinary job"


def described() -> list[str]:
    """Modules in the order in which ARCHITECTURE.md says that an ordinary job enters them."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. .*$", section, flags=re.MULTILINE)
    return re.findall(r"`([a-z_/]+\.py)`", "\n".join(steps))


def entered(folder: Path) -> list[str]:
    """Modules in the order in which a job really entered them, each as often as it did."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ordinary_job.py")), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


def missing_from(way: list[str], modules: list[str]) -> list[str]:
    """Steps of the way that do not follow in the order of the modules."""
    rest = iter(modules)
    return [step for step in way if step not in rest]


@pytest.mark.process
def test_an_ordinary_job_goes_the_way_that_the_architecture_describes(tmp_path: Path) -> None:
    way, modules = described(), entered(tmp_path)
    assert len(way) >= 20
    assert missing_from(way, modules) == []


def test_a_step_that_is_left_out_or_comes_too_early_is_noticed() -> None:
    modules = ["api/router.py", "engine/loop.py", "api/router.py", "core/scheduler.py"]
    assert missing_from(["engine/loop.py", "core/scheduler.py"], modules) == []
    assert missing_from(["core/scheduler.py", "engine/loop.py"], modules) == ["engine/loop.py"]
    assert missing_from(["engine/loop.py", "store/rows.py"], modules) == ["store/rows.py"]
