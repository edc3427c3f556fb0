"""Calls of the Linux kernel that Python 3.11 has no names for."""

from __future__ import annotations

import ctypes
import os

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
    """Namespaces of its own: for this process, or (CLONE_NEWPID) for its next children."""
    _must(_libc.unshare(flags))


def setns(namespace: int, flags: int) -> None:
    """Back into a namespace that a descriptor names."""
    _must(_libc.setns(namespace, flags))


def prctl(option: int, value: int) -> None:
    """Sets a property of this process."""
    _must(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def own_proc() -> None:
    """A /proc that shows this process's PID namespace; other mounts stay as the machine has them.

    Without it programs would look up their own number among the processes of the whole machine.
    """
    unshare(CLONE_NEWNS)
    _must(_libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    flags = ctypes.c_ulong(MS_NOSUID_NODEV_NOEXEC)
    _must(_libc.mount(b"proc", b"/proc", b"proc", flags, None))
