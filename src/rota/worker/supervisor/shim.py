"""Shim: a job's first process; and the supervisor's pool of shims.

A shim starts the job's program, collects whatever dies below it and says how it ended. It is forked
from the supervisor when none is free. Where permitted it is the first process of a PID namespace:
when it is killed, the kernel kills everything in there. Elsewhere it is a subreaper: orphans of the
job become its children, so the tree below it is the whole job. A shim without children has nothing
left running, and serves the next job with the same limits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rota.worker.supervisor import linux
from rota.worker.supervisor.cgroups import Cgroup, Cgroups
from rota.worker.supervisor.messages import (
    NO_CWD,
    NO_NUMBER,
    NO_PROGRAM,
    PROGRAM_ENDED,
    READY,
    SETUP_FAILED,
    SHIM_MESSAGE_BYTES_MAX,
    TREE_ENDED,
    Bounds,
    Channel,
    ShimMessage,
    read_shim_message,
    unpack_job,
)

UMASK = 0o077
LOOK_S = 0.01
"""Interval of checks whether killed processes have gone, where no supervisor is left to do so."""
SUPERVISOR_GONE = signal.SIGUSR1
"""Sent by the kernel to a subreaper when the supervisor dies; in a namespace the shim is killed
instead."""
_DEFAULT_PATH = os.defpath.encode()
RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    SUPERVISOR_GONE,
)
"""Ignored or used by Python and the supervisor; a job finds them as a shell would leave them."""


class ShimSettings:
    """Settings that all shims are forked with."""

    __slots__ = ("agent", "own_namespace")

    def __init__(self, agent: int, home: int | None) -> None:
        self.agent = agent
        """The supervisor's socket to the agent. Shims hold it open too: its end tells the agent
        that they are gone as well."""
        self.own_namespace = home
        """The supervisor's own PID namespace; None: shims get none of their own."""


def fork_shim(
    settings: ShimSettings, bounds: Bounds, group: Cgroup | None
) -> tuple[int, socket.socket]:
    """Forks a shim; returns its pid and the socket to talk to it. Raises OSError where the kernel
    refuses."""
    ours, theirs = socket.socketpair()
    supervisor = os.getpid()
    if settings.own_namespace is not None:
        linux.unshare(linux.CLONE_NEWPID)
    try:
        pid = os.fork()
    finally:
        # Only the supervisor returns to its own namespace; the shim was forked into the new one.
        if settings.own_namespace is not None and os.getpid() == supervisor:
            linux.setns(settings.own_namespace, linux.CLONE_NEWPID)
    if pid == 0:
        _run_shim(settings, theirs, bounds, group)
    theirs.close()
    return pid, ours


def _run_shim(
    settings: ShimSettings, sock: socket.socket, bounds: Bounds, group: Cgroup | None
) -> None:
    """Never returns: a forked process must not go back to what its parent was doing."""
    code = 1
    try:
        _close_other_fds(settings.agent, sock.fileno())
        channel = Channel(sock, takes_fds=True)
        try:
            _prepare(bounds, group, in_namespace=settings.own_namespace is not None)
        except OSError as error:
            _send(channel, ShimMessage(SETUP_FAILED, NO_NUMBER, text=str(error)))
        else:
            _send(channel, ShimMessage(READY))
            _serve(channel)
            code = 0
    except Exception:  # noqa: BLE001  (the top of a process: a bug is printed, and ends it)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _close_other_fds(*kept: int) -> None:
    """Closes the supervisor's descriptors, above all pipes that belong to other jobs."""
    start = 3
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _prepare(bounds: Bounds, group: Cgroup | None, *, in_namespace: bool) -> None:
    # If the supervisor died before the kernel was asked to signal that, the socket's end shows it.
    if in_namespace:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.own_proc()
        _randomize_first_pid()
    else:
        signal.signal(SUPERVISOR_GONE, _end_with_supervisor)
        linux.prctl(linux.PR_SET_PDEATHSIG, SUPERVISOR_GONE)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    if group is not None:
        group.enter()
    if not bounds.may_gain:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    os.umask(UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _set_limit(resource.RLIMIT_NOFILE, bounds.open_files)
    _set_limit(resource.RLIMIT_FSIZE, bounds.file_size)


def _randomize_first_pid() -> None:
    """Lets process numbers begin somewhere else in each namespace.

    Scripts assume that no other running script has their `$$`, and name files after it.
    """
    with contextlib.suppress(OSError), open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(300 + int.from_bytes(os.urandom(2), "big") % 30_000))


def _set_limit(kind: int, value: int | None) -> None:
    if value is None:
        return
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def _end_with_supervisor(number: int, frame: object) -> None:
    while linux.kill_all(os.getpid()):
        select.select((), (), (), LOOK_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(1)


def _serve(channel: Channel) -> None:
    while (messages := channel.receive()) is not None:
        for message in messages:
            _run_job(message, channel)


def _run_job(message: bytes, channel: Channel) -> None:
    argv, env, cwd, wanted = unpack_job(message)
    clear_of = max((number for number, _ in wanted), default=2) + 1
    # All that came: a shim is sent one job at a time.
    fds = [_move_fd(fd, clear_of) for fd in channel.take_fds(len(channel.fds))]
    try:
        os.chdir(cwd)
    except OSError as error:
        for fd in fds:
            os.close(fd)
        _send(channel, ShimMessage(NO_CWD, _errno_of(error)))
        return
    try:
        main = _spawn(argv, env, {number: fds[which] for number, which in wanted})
    except (OSError, ValueError) as error:
        _send(channel, ShimMessage(NO_PROGRAM, _errno_of(error), text=str(error)))
        return
    finally:
        for fd in fds:
            os.close(fd)
        os.chdir("/")
    _wait_for_all(main, channel)


def _move_fd(fd: int, clear_of: int) -> int:
    """Moves a descriptor out of the way of the numbers that a job knows its descriptors by."""
    if fd >= clear_of:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, clear_of)
    os.close(fd)
    return moved


def _wait_for_all(main: int, channel: Channel) -> None:
    """Waits for all that dies below; reports the program's own end at once if others are left."""
    ended: int | None = None
    peak, spent = 0, 0.0
    is_reported = False
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0 if ended is None or is_reported else os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            _send(channel, ShimMessage(PROGRAM_ENDED, ended or 0, peak))
            is_reported = True
            continue
        spent += usage.ru_utime + usage.ru_stime
        if pid == main:
            ended, peak = status, usage.ru_maxrss * 1024
    _send(channel, ShimMessage(TREE_ENDED, ended or 0, peak, spent))


def _send(channel: Channel, message: ShimMessage) -> None:
    channel.send(message.packed())


def _errno_of(error: Exception) -> int:
    number = error.errno if isinstance(error, OSError) else None
    return NO_NUMBER if number is None else number


def _spawn(argv: list[bytes], env: dict[bytes, bytes], fds: dict[int, int]) -> int:
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, fd, number) for number, fd in fds.items()
    ]
    if 0 not in fds:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    refused: OSError | None = None
    for path in _existing_paths(argv[0], env.get(b"PATH", _DEFAULT_PATH)):
        try:
            return os.posix_spawn(
                path, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused or FileNotFoundError(2, "not found")


def _existing_paths(program: bytes, path: bytes) -> Iterator[bytes]:
    """Yields where the program may be, one path after the other."""
    if b"/" in program:
        yield program
        return
    is_seen = False
    # A failed start costs a process, a look does not (docs/performance.md). Where no path can be
    # seen all are tried, so that the error is the kernel's own.
    for place in _paths_of(program, path):
        if os.access(place, os.F_OK):
            is_seen = True
            yield place
    if not is_seen:
        yield from _paths_of(program, path)


@lru_cache(maxsize=64)
def _paths_of(program: bytes, path: bytes) -> tuple[bytes, ...]:
    return tuple(os.path.join(folder or b".", program) for folder in path.split(b":"))


IDLE_MAX = 32
"""Idle shims kept; each takes a megabyte or two."""
SEND_S = 2
"""A shim that takes nothing for this long has been stopped by somebody."""
_PATIENCE = struct.pack("ll", SEND_S, 0)
"""As the kernel wants it. A timeout of Python's would poll the socket before every send."""


class Shim:
    """Supervisor's handle on one shim."""

    __slots__ = (
        "_cpu_s",
        "_peak",
        "_usage",
        "bounds",
        "channel",
        "forks_refused",
        "group",
        "key",
        "pid",
    )

    def __init__(self, pid: int, sock: socket.socket, bounds: Bounds) -> None:
        self.pid = pid
        self.channel = Channel(sock, bytes_max=SHIM_MESSAGE_BYTES_MAX)
        self.bounds = bounds
        self.group: Cgroup | None = None
        self.key = 0
        """Key of the job that it runs; 0: none."""
        self.forks_refused = 0
        self._cpu_s = 0.0
        self._peak = 0
        self._usage: resource.struct_rusage | None = None
        """Set once it was collected."""

    def read_messages(self) -> list[ShimMessage] | None:
        """Returns its new messages; None: it is gone. Raises ValueError for what no shim sends."""
        messages = self.channel.receive()
        return None if messages is None else [read_shim_message(message) for message in messages]

    def add_usage(self, cpu_s: float, peak: int) -> None:
        """Adds the usage of a job that ended in it."""
        self._cpu_s += cpu_s
        self._peak = max(self._peak, peak)

    def last_job_usage(self) -> tuple[float, int]:
        """CPU seconds and memory of the job it died with: its own figures less those of earlier
        jobs."""
        assert self._usage is not None
        peak = self._usage.ru_maxrss * 1024
        cpu_s = self._usage.ru_utime + self._usage.ru_stime - self._cpu_s
        return max(0.0, cpu_s), peak if peak > self._peak else 0

    def is_reaped(self) -> bool:
        """Whether it is gone, and with it, in a namespace of its own, everything below it."""
        if self._usage is None:
            pid, _, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self._usage = usage
            if self.group is not None:
                self.group.remove()
        return True


class ShimPool:
    """Makes shims and keeps idle ones."""

    def __init__(self, agent: socket.socket, groups: Cgroups, isolation: str) -> None:
        self.groups = groups
        self.why = ""
        """Why there are no namespaces, where there are none."""
        self.living: dict[int, Shim] = {}
        """By process number."""
        self._idle: dict[Bounds, list[Shim]] = {}
        self._idle_count = 0
        self._settings = ShimSettings(agent.fileno(), None)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        if isolation == "auto":
            self._try_namespaces(agent.fileno())
        else:
            self.why = "switched off"

    @property
    def in_namespaces(self) -> bool:
        """Whether each shim is the first process of a PID namespace."""
        return self._settings.own_namespace is not None

    def take(self, bounds: Bounds) -> Shim:
        """Returns a shim with these limits. Raises OSError if none can be made."""
        idle = self._idle.get(bounds)
        if idle:
            self._idle_count -= 1
            return idle.pop()
        return self._make(bounds)

    def give_back(self, shim: Shim) -> bool:
        """Takes back a shim with nothing below it; False if it is not needed, and must be
        dismissed."""
        if shim.bounds.memory is not None or self._idle_count >= IDLE_MAX:
            return False  # a cgroup keeps its peak, so each job needs a new one
        shim.key = 0
        self._idle.setdefault(shim.bounds, []).append(shim)
        self._idle_count += 1
        return True

    def forget(self, shim: Shim) -> None:
        """Removes a shim that is gone, or about to be."""
        idle = self._idle.get(shim.bounds, [])
        if shim in idle:
            idle.remove(shim)
            self._idle_count -= 1
        shim.channel.close()

    def idle(self) -> list[Shim]:
        return [shim for shims in self._idle.values() for shim in shims]

    def orphans(self) -> list[int]:
        """Lists children of the supervisor that are no shims: their job has killed its shim."""
        return [pid for pid in linux.children(os.getpid()) if pid not in self.living]

    def _make(self, bounds: Bounds) -> Shim:
        group = self.groups.make(bounds.processes, bounds.memory)
        try:
            pid, sock = fork_shim(self._settings, bounds, group)
        except OSError:
            if group is not None:
                group.remove()
            raise
        for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, way, _PATIENCE)
        shim = Shim(pid, sock, bounds)
        shim.group = group
        self.living[pid] = shim
        return shim

    def _try_namespaces(self, agent: int) -> None:
        home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._settings = ShimSettings(agent, home)
        try:
            shim = self._make(Bounds())
        except OSError as error:
            self.why = f"the kernel refuses a PID namespace: {error.strerror}"
        else:
            self.why = self._startup_problem(shim)
            self.living.pop(shim.pid)
            os.kill(shim.pid, signal.SIGKILL)
            os.waitpid(shim.pid, 0)
            shim.channel.close()
            if shim.group is not None:
                shim.group.remove()
        if self.why:
            os.close(home)
            self._settings = ShimSettings(agent, None)

    def _startup_problem(self, shim: Shim) -> str:
        with contextlib.suppress(OSError):
            for message in shim.read_messages() or ():
                return (
                    f"/proc cannot be mounted: {message.text}"
                    if message.kind == SETUP_FAILED
                    else ""
                )
        return "the first process of a PID namespace ended at once"
