"""Workspace of executions: their folders, environment, payload, result and output files.

Holds nothing of the agent's own. A folder that a job left clean serves the next one. Output files
are collected without following any link.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from rota.wire.limits import OUTPUT_DEPTH_MAX, OUTPUT_FILES_MAX, OUTPUT_NAME_BYTES_MAX
from rota.wire.traces import run_traceparent
from rota.wire.workers import OrderView
from rota.worker.group_env import group_variables
from rota.worker.runners.output_channels import ProgressCallback, ProgressPipe

_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\\]")
"""What servers allow in no name of an output file."""
NOTED_MAX = 100
"""What is not kept is named in the log up to so often; the rest is counted."""


@dataclass(slots=True)
class OutputFiles:
    """All that lies there."""

    files: dict[str, Path] = field(default_factory=dict)
    """What is kept, by name: the way down to it, with slashes."""
    others: list[str] = field(default_factory=list)
    """What is not, and why, in words."""


def find_outputs(
    folder: Path, files_max: int = OUTPUT_FILES_MAX, noted_max: int = NOTED_MAX
) -> OutputFiles:
    """Those of a job that has ended. No link is followed, so that nothing outside is taken along;
    and what no server takes is not offered to one: a refusal would fail the job."""
    found, unnoted = OutputFiles(), 0
    if not _is_still_a_folder(folder):
        # A container that sees only its own folder could have put a link to the machine's there.
        found.others.append("ROTA_ARTIFACTS is no folder any more, or is locked: nothing is kept")
        return found
    for name, why in _walk(folder, ""):
        if why is None and len(found.files) < files_max:
            found.files[name] = folder / name
        elif len(found.others) < noted_max:
            shown = name if name.isprintable() else repr(name)
            limit = f"there are more than {files_max} files"
            found.others.append(f"{shown} in ROTA_ARTIFACTS is not kept: {why or limit}")
        else:
            unnoted += 1
    if unnoted:
        found.others.append(f"{unnoted} more in ROTA_ARTIFACTS are not kept")
    return found


def _is_still_a_folder(folder: Path) -> bool:
    try:
        return stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.R_OK | os.X_OK)
    except FileNotFoundError:
        return False


def _walk(folder: Path, above: str, depth: int = 1) -> Iterator[tuple[str, str | None]]:
    """Everything by its name, and why it is not kept; None: it is."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        name = f"{above}{entry.name}"
        is_folder = entry.is_dir(follow_symlinks=False)
        why = _why_not_kept(entry, name, is_folder=is_folder)
        if why is not None or not is_folder:
            yield name, why
        elif depth >= OUTPUT_DEPTH_MAX:
            yield name, f"it is in more than {OUTPUT_DEPTH_MAX - 1} folders"
        else:
            try:
                yield from _walk(folder / entry.name, f"{name}/", depth + 1)
            except OSError as error:
                yield name, f"it cannot be read: {error.strerror}"


def _why_not_kept(entry: os.DirEntry[str], name: str, *, is_folder: bool) -> str | None:
    if entry.name[0] == "." or not (is_folder or entry.is_file(follow_symlinks=False)):
        return "it is hidden or not a plain file"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _UNNAMEABLE.search(entry.name):
        return "its name has a backslash or a control character"
    if size > OUTPUT_NAME_BYTES_MAX:
        return f"its name, with its folders, has more than {OUTPUT_NAME_BYTES_MAX} bytes"
    return None


INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME")
"""Of the agent's environment; and whatever begins with LC_."""
LOCK_NAME = "lock"
LONG_AGO_NS = 1_000_000_007_123_456_789
"""What a new folder is dated: whatever is put there, or taken away, dates it anew."""
JSON = msgspec.json.Decoder()


class UnusableError(Exception):
    """A folder or file cannot be used, and why."""


class AgentWorkspace:
    """This agent's folder below the one all agents of the machine may share.

    The lock is held as long as the agent lives; folders whose lock is free were left by agents
    that died, and are removed.
    """

    def __init__(self, shared: Path) -> None:
        _make_private(shared)
        _remove_abandoned(shared)
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


def _remove_abandoned(shared: Path) -> None:
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


class ExecutionFolder:
    """One execution's own folder, readable by this user only."""

    def __init__(self, workplace: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="execution-", dir=workplace))
        self.cwd = self.path / "work"
        self.tmp = self.path / "tmp"
        self.artifacts = self.path / "artifacts"
        self.inputs = self.path / "inputs"
        """Made for those jobs that have some."""
        for folder in (self.cwd, self.tmp, self.artifacts):
            folder.mkdir(mode=0o700)
        dated = _date(self.path)
        self.payload = self.path / "payload.json"
        self.payload.touch(mode=0o600)
        self.result = self.path / "result.json"
        self.progress = self.path / "progress"
        os.mkfifo(self.progress, 0o600)
        self._fifo = os.lstat(self.progress).st_ino
        self._progress_pipe: ProgressPipe | None = None
        self._dates: dict[Path, _Date] = {}
        """As it was left for a job. Empty where the file system does not keep such dates."""
        self._is_unused: bool | None = None
        """Whether the job that has ended here left nothing at all; None: none has."""
        if _date_of(self.path) != dated:
            self._date_anew()

    def fill(self, order: OrderView) -> None:
        """Puts there what the job is given."""
        payload = bytes(order.payload)
        handle = os.open(self.payload, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Most payloads are empty, and a write costs more than a look.
            if os.pread(handle, len(payload) + 1, 0) != payload:
                os.ftruncate(handle, 0)
                _write_all(handle, payload)
        finally:
            os.close(handle)

    def listen(self, sink: ProgressCallback) -> None:
        """Its job begins, whose progress `sink` hears of until `hush`. Raises OSError."""
        self._is_unused = None
        if self._progress_pipe is None:
            self._progress_pipe = ProgressPipe(self.progress)
        self._progress_pipe.listen(sink)

    def stop_listening(self) -> None:
        """Its job is over, or never began."""
        if self._is_unused is not None:
            return
        self._is_unused = self._is_untouched(*self._folders)
        if self._progress_pipe is not None:
            self._progress_pipe.stop_listening()

    def close(self) -> None:
        """Nobody listens here any more: it is to be removed."""
        if self._progress_pipe is not None:
            self._progress_pipe.close()
            self._progress_pipe = None

    def is_clean(self) -> bool:
        """Whether a job that has ended left it, its result aside, just as it was made."""
        try:
            return (
                (self._is_unused or self._is_untouched(*self._folders) or self._looks_new())
                and _is(self.payload, stat.S_IFREG | 0o600)
                and _is(self.progress, stat.S_IFIFO | 0o600, self._fifo)
            )
        except OSError:
            return False

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.path, self.cwd, self.tmp, self.artifacts

    def _is_untouched(self, *folders: Path) -> bool:
        """Whether nothing came there or went since it was left for a job. To list them takes much
        longer, and most jobs leave nothing."""
        try:
            return all(_date_of(folder) == self._dates.get(folder) for folder in folders)
        except OSError:
            return False

    def _looks_new(self) -> bool:
        self.result.unlink(missing_ok=True)
        found = sorted(os.listdir(self.path))
        is_new = (
            found == ["artifacts", "payload.json", "progress", "tmp", "work"]
            and all(_is(path, stat.S_IFDIR | 0o700) for path in self._folders)
            and not any(os.listdir(path) for path in self._folders[1:])
        )
        if is_new and self._dates:
            self._date_anew()
        return is_new

    def _date_anew(self) -> None:
        self._dates = {folder: _date(folder) for folder in self._folders}

    def remove(self) -> None:
        """Takes everything away, also what the job made unreadable for itself."""
        shutil.rmtree(self.path, onerror=_unlock_and_retry)

    def read_result(self, limit: int) -> msgspec.Raw | None:
        """What the job left as its result; None if nothing. Raises UnusableError."""
        if self._is_unused or self._is_untouched(self.path):
            return None
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
            text = file.read(limit + 1)
        if len(text) > limit:
            raise UnusableError(
                f"ROTA_RESULT is larger than {limit} bytes: leave large output in ROTA_ARTIFACTS"
            )
        if not text.strip():
            return None
        try:
            JSON.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnusableError(f"ROTA_RESULT is not JSON: {error}") from None
        return msgspec.Raw(text)

    def has_outputs(self) -> bool:
        """Whether anything may lie where output files are left."""
        return not (self._is_unused or self._is_untouched(self.artifacts))


class FolderPool:
    """Folders that wait for the next job.

    Making and removing one takes a dozen changes to the file system, which on many a machine takes
    longer than a short job; most jobs leave theirs as they found it.
    """

    def __init__(self, workplace: Path, kept_max: int) -> None:
        self._workspace = workplace
        self._kept_max = kept_max
        self._kept: list[ExecutionFolder] = []

    def take(self, order: OrderView) -> ExecutionFolder:
        """A folder with what the job is given. Raises OSError."""
        folder = self._kept.pop() if self._kept else ExecutionFolder(self._workspace)
        try:
            folder.fill(order)
        except OSError:
            folder.close()
            folder.remove()
            raise
        return folder

    def put_back(self, folder: ExecutionFolder) -> bool:
        """Nobody uses it any more; False if it must be removed."""
        if len(self._kept) >= self._kept_max or not folder.is_clean():
            folder.close()
            return False
        self._kept.append(folder)
        return True


def sha256_of(file: Path) -> str:
    """Of an output file, for whoever gets it to compare."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is(path: Path, mode: int, inode: int | None = None) -> bool:
    """Of this kind and with these rights; and no other name leads to it. `inode`: that very one."""
    found = os.lstat(path)
    if inode is not None and found.st_ino != inode:
        return False
    return found.st_mode == mode and (stat.S_ISDIR(mode) or found.st_nlink == 1)


_Date: TypeAlias = tuple[int, int, int, int]


def _date(folder: Path) -> _Date:
    """Gives it a date that it keeps until something changes in it."""
    os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return _date_of(folder)


def _date_of(folder: Path) -> _Date:
    """By the second time even what sets the first one back is seen."""
    found = os.lstat(folder)
    return found.st_ino, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _unlock_and_retry(function: object, path: str, _: object) -> None:
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def inherited_environment(named: Sequence[str] = ()) -> dict[str, str]:
    """Those few of the agent's variables that everything it starts may see, and those named."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED_VARIABLES or name.startswith("LC_") or name in named
    }
    env.setdefault("PATH", os.defpath)
    return env


def job_environment(
    order: OrderView, plain: Mapping[str, str], folder: ExecutionFolder, worker: str
) -> dict[str, str]:
    """What a job finds: `plain`, with ours on top."""
    env = {"TMPDIR": str(folder.tmp), **plain}
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
        # A program may rely on it, also where the server names no trace.
        TRACEPARENT=order.traceparent or run_traceparent(order.job_id, order.fence),
    )
    env.update(group_variables(order.array, order.gang))
    return env
