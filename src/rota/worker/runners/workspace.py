"""Workspace of executions: their folders, environment, payload, result and output files.

It holds nothing of the agent's own. A folder that a job left clean serves the next one. Output
files are collected without following any link.
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
"""Characters that servers refuse in names of output files."""
NOTED_MAX = 100
"""Output files that are not kept: this many are named in the log, the rest is counted."""


@dataclass(slots=True)
class OutputFiles:
    """Output files that a job left."""

    files: dict[str, Path] = field(default_factory=dict)
    """Files to keep, by relative path with slashes."""
    others: list[str] = field(default_factory=list)
    """Messages about those that are not kept, and why."""


def find_outputs(
    folder: Path, files_max: int = OUTPUT_FILES_MAX, noted_max: int = NOTED_MAX
) -> OutputFiles:
    """Finds the output files of a job that has ended.

    No link is followed, so that nothing outside is taken along. What every server refuses is not
    offered to one: a refusal would fail the job.
    """
    found, unnoted = OutputFiles(), 0
    if not _is_still_a_folder(folder):
        # A container could have replaced the folder by a link to one of the machine's.
        found.others.append("ROTA_ARTIFACTS is no longer a readable folder: no file is kept")
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
    """Yields every name below, and why it is not kept; None: it is."""
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
"""Of the agent's environment; LC_* variables too."""
LOCK_NAME = "lock"
LONG_AGO_NS = 1_000_000_007_123_456_789
"""Date given to a new folder: any change in the folder replaces it."""
JSON = msgspec.json.Decoder()


class UnusableError(Exception):
    """Raised when a folder or file cannot be used."""


class AgentWorkspace:
    """Folder of this agent, below the one that all agents of the machine may share.

    The agent holds a lock as long as it lives; folders whose lock is free were left by agents that
    died, and are removed.
    """

    def __init__(self, shared: Path) -> None:
        _make_private(shared)
        _remove_abandoned(shared)
        self.path = Path(tempfile.mkdtemp(prefix="agent-", dir=shared))
        self._lock = os.open(self.path / LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def default_work_dir() -> Path:
    """Returns one folder for each user."""
    return Path(tempfile.gettempdir()) / f"rota-worker-{os.getuid()}"


def _make_private(path: Path) -> None:
    """Makes the folder and checks its owner: in a place such as /tmp another user may have made it
    first."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UnusableError(
            f"the work folder {path} must be a folder that belongs to this user and that no other "
            "user may write to; choose another one with --work-dir"
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
    """Folder of one execution, readable by this user only."""

    def __init__(self, workplace: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="execution-", dir=workplace))
        self.cwd = self.path / "work"
        self.tmp = self.path / "tmp"
        self.artifacts = self.path / "artifacts"
        self.inputs = self.path / "inputs"
        """Made for jobs that have inputs."""
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
        """Dates as they were left for a job. Empty where the file system does not keep such
        dates."""
        self._is_unused: bool | None = None
        """Whether the job that has ended here left nothing at all; None: no job has ended."""
        if _date_of(self.path) != dated:
            self._date_anew()

    def fill(self, order: OrderView) -> None:
        """Writes the job's payload."""
        payload = bytes(order.payload)
        handle = os.open(self.payload, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # Most payloads are empty, and a write costs more than a read.
            if os.pread(handle, len(payload) + 1, 0) != payload:
                os.ftruncate(handle, 0)
                write_all(handle, payload)
        finally:
            os.close(handle)

    def listen(self, sink: ProgressCallback) -> None:
        """Sends the job's progress to `sink` until `stop_listening`. Raises OSError."""
        self._is_unused = None
        if self._progress_pipe is None:
            self._progress_pipe = ProgressPipe(self.progress)
        self._progress_pipe.listen(sink)

    def stop_listening(self) -> None:
        """Ends the job's progress; called when it is over, or never began."""
        if self._is_unused is not None:
            return
        self._is_unused = self._is_untouched(*self._folders)
        if self._progress_pipe is not None:
            self._progress_pipe.stop_listening()

    def close(self) -> None:
        """Closes its pipe, before it is removed."""
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
        """Whether nothing was made or removed there. To list the folders takes much longer, and
        most jobs leave nothing."""
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
        """Removes everything, also what the job made unreadable for itself."""
        shutil.rmtree(self.path, onerror=_unlock_and_retry)

    def read_result(self, limit: int) -> msgspec.Raw | None:
        """Reads the job's result; None if there is none. Raises UnusableError."""
        if self._is_unused or self._is_untouched(self.path):
            return None
        try:
            # Without waiting or following: the job may have left a pipe there, or a link.
            handle = os.open(self.result, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnusableError(f"ROTA_RESULT cannot be read: {error.strerror}") from None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnusableError("ROTA_RESULT is no longer a plain file")
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
        """Whether there may be output files."""
        return not (self._is_unused or self._is_untouched(self.artifacts))


class FolderPool:
    """Pool of clean folders for the next jobs.

    Making and removing one takes a dozen changes to the file system, which on many a machine takes
    longer than a short job; most jobs leave theirs as they found it.
    """

    def __init__(self, workplace: Path, kept_max: int) -> None:
        self._workspace = workplace
        self._kept_max = kept_max
        self._kept: list[ExecutionFolder] = []

    def take(self, order: OrderView) -> ExecutionFolder:
        """Returns a folder with the job's payload. Raises OSError."""
        folder = self._kept.pop() if self._kept else ExecutionFolder(self._workspace)
        try:
            folder.fill(order)
        except OSError:
            folder.close()
            folder.remove()
            raise
        return folder

    def put_back(self, folder: ExecutionFolder) -> bool:
        """Keeps a clean folder; False if it must be removed."""
        if len(self._kept) >= self._kept_max or not folder.is_clean():
            folder.close()
            return False
        self._kept.append(folder)
        return True


def sha256_of(file: Path) -> str:
    """Returns the checksum of an output file, for the server to compare."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is(path: Path, mode: int, inode: int | None = None) -> bool:
    """Whether the path has this type and these permissions and no other name; `inode`: is that very
    one."""
    found = os.lstat(path)
    if inode is not None and found.st_ino != inode:
        return False
    return found.st_mode == mode and (stat.S_ISDIR(mode) or found.st_nlink == 1)


_Date: TypeAlias = tuple[int, int, int, int]


def _date(folder: Path) -> _Date:
    """Gives a folder a date that it keeps until something changes in it."""
    os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return _date_of(folder)


def _date_of(folder: Path) -> _Date:
    """Metadata that any change alters: the second time shows even a change that sets the first one
    back."""
    found = os.lstat(folder)
    return found.st_ino, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


def write_all(handle: int, data: bytes) -> None:
    """Writes all bytes, also where the system takes only a part at once."""
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
    """Returns the few variables of the agent that everything it starts may see, and those named."""
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
    """Returns a job's environment: `plain`, with Rota's variables on top."""
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
        # Programs may rely on it, so it is set even where the server names no trace.
        TRACEPARENT=order.traceparent or run_traceparent(order.job_id, order.fence),
    )
    env.update(group_variables(order.array, order.gang))
    return env
