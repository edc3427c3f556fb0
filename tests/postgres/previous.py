"""The program as it was before this one, out of this repository's own history."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

PREVIOUS = "9cca2f2b0ae8799dc4b4147be3f2ba442945da47"
"""The commit it is taken from. With each release this moves on to the release before it."""
ROOT = Path(__file__).resolve().parents[2]
LIVES = Path(__file__).with_name("previous_lives.py")


class NoHistoryError(Exception):
    """This copy of the repository does not go back so far."""


class PreviousProgram:
    """Its source in a folder of its own; it runs with the same Python and the same packages."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "src"
        try:
            packed = subprocess.run(
                ["git", "-C", str(ROOT), "archive", PREVIOUS, "src"],
                capture_output=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoHistoryError(f"commit {PREVIOUS} is not here, as in a shallow clone") from error
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")

    def run_lives(self, dsn: str, name: str, count: int) -> None:
        """Leads on that database: jobs are submitted, run, completed and read."""
        env = dict(os.environ) | {"PYTHONPATH": str(self._source)}
        done = subprocess.run(
            [sys.executable, "-W", "error", str(LIVES), dsn, name, str(count)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
