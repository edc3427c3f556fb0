from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
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
    """Modules in the order in which a job really entered them."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ordinary_job.py")), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


@pytest.mark.process
def test_an_ordinary_job_goes_the_way_that_the_architecture_describes(tmp_path: Path) -> None:
    way, modules = described(), entered(tmp_path)
    assert len(way) >= 20
    assert [name for name in way if name not in modules] == []
    out_of_order = [
        pair for pair in pairwise(way) if modules.index(pair[0]) > modules.index(pair[1])
    ]
    assert out_of_order == []
