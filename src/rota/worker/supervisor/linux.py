"""Linux system calls that Python 3.11 has no names for, and process trees, read from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC = 0x4000
MS_SLAVE = 1 << 19
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unshare(flags: int) -> None:
    """Gives this process, or (CLONE_NEWPID) its next children, namespaces of their own."""
    _must(_libc.unshare(flags))


def setns(namespace: int, flags: int) -> None:
    """Returns to a namespace that a descriptor names."""
    _must(_libc.setns(namespace, flags))


def prctl(option: int, value: int) -> None:
    _must(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def own_proc() -> None:
    """Mounts a /proc that shows this process's PID namespace; other mounts stay as they are.

    Without it programs would look up their own number among the processes of the whole machine.
    """
    unshare(CLONE_NEWNS)
    _must(_libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    flags = ctypes.c_ulong(MS_NOSUID_NODEV_NOEXEC)
    _must(_libc.mount(b"proc", b"/proc", b"proc", flags, None))


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""A kernel may be built without these lists; then all processes of the machine are read."""


def descendants(root: int) -> list[int]:
    """Lists all living processes below `root`, parents before their children."""
    below = _listed if LISTS_CHILDREN else _family().get
    found: list[int] = []
    ahead = list(below(root) or ())
    while ahead:
        pid = ahead.pop()
        ahead += below(pid) or ()
        if not _is_dead(pid):
            found.append(pid)
    return found


def kill_all(root: int) -> list[int]:
    """Sends SIGKILL to everything below `root`; returns what was there.

    All of it is stopped first, until no new process is found: a tree that forks faster than it can
    be killed one by one is caught all the same.
    """
    stopped: dict[int, None] = {}
    while fresh := [pid for pid in descendants(root) if pid not in stopped]:
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
            stopped[pid] = None
    for pid in stopped:
        send_signal(pid, signal.SIGKILL)
    return list(stopped)


def send_signal(pid: int, number: int) -> None:
    """Sends a signal; ignores a process that is gone, or that this one may not signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def resident(pids: list[int]) -> int:
    """Sums the memory that these processes hold; shared pages count for each of them."""
    return sum(_resident(pid) for pid in pids)


def proportional(pids: list[int]) -> int:
    """Sums the same with shared pages divided among their users; takes longer."""
    return sum(_proportional(pid) for pid in pids)


def children(pid: int) -> list[int]:
    """Lists the processes right below one, including dead ones that nobody has collected."""
    return _listed(pid) if LISTS_CHILDREN else _family().get(pid, [])


def _listed(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _family() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int(_read(f"/proc/{name}/stat").rpartition(b")")[2].split(None, 2)[1])
                children.setdefault(parent, []).append(int(name))
    return children


def _is_dead(pid: int) -> bool:
    try:
        state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 1)[0]
    except (OSError, IndexError):
        return True
    return state in (b"Z", b"X")


def _resident(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        text = _read(f"/proc/{pid}/smaps_rollup")
        return int(text.partition(b"\nPss:")[2].split(None, 1)[0]) * 1024
    except (OSError, IndexError):
        return _resident(pid)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
