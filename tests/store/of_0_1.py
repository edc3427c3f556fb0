"""The last program of 0.1, out of this repository's history: it fills stores to be migrated."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

COMMIT = "4060258ec21fd03e5e35ceec4bb0109b4662ee52"
"""The last commit of 0.1."""
ROOT = Path(__file__).resolve().parents[2]
LIVES = Path(__file__).with_name("of_0_1_lives.py")


class NoHistoryError(Exception):
    """This copy of the repository does not go back so far."""


class ProgramOf01:
    """Its source in a folder of its own; it runs with the same Python and the same packages."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "src"
        try:
            packed = subprocess.run(
                ["git", "-C", str(ROOT), "archive", COMMIT, "src"],
                capture_output=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoHistoryError(f"commit {COMMIT} is not here, as in a shallow clone") from error
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")

    def run_lives(self, where: str, name: str, count: int) -> None:
        """Leads on a database or directory: runs jobs to their end and leaves as many queued."""
        done = self.try_lives(where, name, count)
        assert done.returncode == 0, done.stdout + done.stderr

    def try_lives(self, where: str, name: str, count: int) -> subprocess.CompletedProcess[str]:
        """The same, and answers how it ended."""
        env = dict(os.environ) | {"PYTHONPATH": str(self._source)}
        return subprocess.run(
            [sys.executable, "-W", "error", str(LIVES), where, name, str(count)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
