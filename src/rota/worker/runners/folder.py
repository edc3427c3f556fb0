"""Folders and environments: what a job finds around it, and nothing of the agent's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.wire.limits import RESULT_BYTES_MAX
from rota.wire.workers import OrderView

PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME")
"""Of the agent's environment; and whatever begins with LC_."""
LOCK_NAME = "lock"
JSON = msgspec.json.Decoder()


class UnusableError(Exception):
    """A folder or file cannot be used, and why."""


class Workplace:
    """This agent's folder below the one all agents of the machine may share.

    The lock is held as long as the agent lives; folders whose lock is free were left by agents
    that died, and are removed.
    """

    def __init__(self, shared: Path) -> None:
        _make_private(shared)
        _sweep(shared)
        self.path = Path(tempfile.mkdtemp(prefix="agent-", dir=shared))
        self._lock = os.open(self.path / LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def default_work_dir() -> Path:
    """One folder a user."""
    return Path(tempfile.gettempdir()) / f"rota-worker-{os.getuid()}"


def _make_private(path: Path) -> None:
    """In a folder such as /tmp somebody else might have been there first."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UnusableError(
            f"the work folder {path} must be a folder that belongs to this user and that nobody "
            "else may write to; name another one"
        )


def _sweep(shared: Path) -> None:
    for folder in shared.glob("agent-*"):
        try:
            lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # an agent that is just starting has not made its lock yet
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


class Folder:
    """One execution's own folder, readable by this user only."""

    def __init__(self, workplace: Path, order: OrderView) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="execution-", dir=workplace))
        self.cwd = self.path / "work"
        self.tmp = self.path / "tmp"
        self.artifacts = self.path / "artifacts"
        for folder in (self.cwd, self.tmp, self.artifacts):
            folder.mkdir(mode=0o700)
        self.payload = self.path / "payload.json"
        self.payload.touch(mode=0o600)
        self.payload.write_bytes(bytes(order.payload))
        self.result = self.path / "result.json"
        self.progress = self.path / "progress"
        os.mkfifo(self.progress, 0o600)

    def remove(self) -> None:
        """Takes everything away, also what the job made unreadable for itself."""
        shutil.rmtree(self.path, onerror=_unlock_and_retry)

    def read_result(self) -> msgspec.Raw | None:
        """What the job left as its result; None if nothing. Raises UnusableError."""
        try:
            # Without waiting: the job may have left a pipe there, or a link to anywhere.
            handle = os.open(self.result, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnusableError(f"ROTA_RESULT cannot be read: {error.strerror}") from None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnusableError("ROTA_RESULT is not a plain file any more")
            text = file.read(RESULT_BYTES_MAX + 1)
        if len(text) > RESULT_BYTES_MAX:
            raise UnusableError(
                f"ROTA_RESULT is larger than {RESULT_BYTES_MAX} bytes: leave large output in "
                "ROTA_ARTIFACTS"
            )
        if not text.strip():
            return None
        try:
            JSON.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnusableError(f"ROTA_RESULT is not JSON: {error}") from None
        return msgspec.Raw(text)

    def kept_files(self) -> tuple[list[Path], list[Path]]:
        """Output files by name, and what lies there that is hidden or not a plain file."""
        files: list[Path] = []
        others: list[Path] = []
        for entry in sorted(self.artifacts.iterdir()):
            plain = entry.is_file() and not entry.is_symlink() and entry.name[0] != "."
            (files if plain else others).append(entry)
        return files, others


def _unlock_and_retry(function: object, path: str, _: object) -> None:
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def environment(
    order: OrderView, task_env: Mapping[str, str], folder: Folder, worker: str
) -> dict[str, str]:
    """A clean environment: a few of the agent's variables, the task's, and ours on top."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }
    env.setdefault("PATH", os.defpath)
    env["TMPDIR"] = str(folder.tmp)
    env.update(task_env)
    env.update(
        ROTA_JOB_ID=order.job_id,
        ROTA_EXECUTION_ID=order.execution_id,
        ROTA_ATTEMPT=str(order.attempt),
        ROTA_FENCE=str(order.fence),
        ROTA_WORKER=worker,
        ROTA_PAYLOAD=str(folder.payload),
        ROTA_RESULT=str(folder.result),
        ROTA_PROGRESS=str(folder.progress),
        ROTA_ARTIFACTS=str(folder.artifacts),
        ROTA_SCHEDULED_AT=order.scheduled_at,
    )
    if order.traceparent:
        env["TRACEPARENT"] = order.traceparent
    return env
