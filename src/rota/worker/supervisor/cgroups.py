"""Cgroups for jobs, below the worker's own one: limits that the kernel itself enforces.

Version 1 has a tree for each controller, version 2 one for all. Where no cgroup may be made, the
supervisor watches sizes and counts itself.
"""

from __future__ import annotations

import contextlib
import os

CGROUPS = "/sys/fs/cgroup"
PREFIX = "rota-"
CONTROLLERS = ("memory", "pids")
PIDS_EVENTS = "pids.events"
READ_BYTES = 64 * 1024
"""More than any file that is read here has; the kernel returns such files in one piece."""


class Cgroup:
    """Cgroup of one shim: its folders by controller."""

    __slots__ = ("_folders", "_kept", "_version")

    def __init__(self, folders: dict[str, str], version: int) -> None:
        self._folders = folders
        self._version = version
        self._kept: dict[str, str] = {}
        """Contents of its files before the folders were removed."""

    def has(self, controller: str) -> bool:
        """Whether the kernel enforces this kind of limit on the job."""
        return controller in self._folders

    def bound(self, processes: int | None, memory: int | None) -> None:
        """Sets the limits; the shim itself counts as one more process."""
        if processes is not None and "pids" in self._folders:
            _write(self._folders["pids"], "pids.max", processes + 1)
        if memory is None or "memory" not in self._folders:
            return
        folder = self._folders["memory"]
        if self._version == 1:
            _write(folder, "memory.limit_in_bytes", memory)
            _try(folder, "memory.memsw.limit_in_bytes", memory)
        else:
            _write(folder, "memory.max", memory)
            _try(folder, "memory.swap.max", 0)
            _try(folder, "memory.oom.group", 1)

    def enter(self) -> None:
        """Moves the calling process here, and all that it will start."""
        for folder in dict.fromkeys(self._folders.values()):
            _write(folder, "cgroup.procs", 0)

    def killed_for_memory(self) -> bool:
        """Whether the kernel killed a process because the memory limit was reached."""
        return _count(self._text("memory", self._events_file), "oom_kill") > 0

    def forks_refused(self) -> int:
        """How often a process could not be started because the process limit was reached."""
        return _count(self._text("pids", PIDS_EVENTS), "max")

    def peak(self) -> int | None:
        """Highest memory use, in bytes."""
        text = self._text("memory", self._peak_file).strip()
        return int(text) if text.isdigit() else None

    def remove(self) -> None:
        """Removes the folders, which must be empty of processes. Their figures stay available."""
        for controller, name in (
            ("memory", self._events_file),
            ("memory", self._peak_file),
            ("pids", PIDS_EVENTS),
        ):
            self._kept[name] = self._text(controller, name)
        for folder in dict.fromkeys(self._folders.values()):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    @property
    def _events_file(self) -> str:
        return "memory.oom_control" if self._version == 1 else "memory.events"

    @property
    def _peak_file(self) -> str:
        return "memory.max_usage_in_bytes" if self._version == 1 else "memory.peak"

    def _text(self, controller: str, name: str) -> str:
        kept = self._kept.get(name)
        return _read(self._folders.get(controller), name) if kept is None else kept


class Cgroups:
    """Makes a cgroup for each shim, below the folders that this worker may use."""

    def __init__(self, places: dict[str, str], version: int) -> None:
        self._folders = places
        self._version = version
        self._made = 0

    def kinds(self) -> dict[str, str]:
        """Which limits the kernel enforces, and by what."""
        return dict.fromkeys(self._folders, f"cgroup v{self._version}")

    def make(self, processes: int | None, memory: int | None) -> Cgroup | None:
        """Makes a cgroup for one shim; None if it could enforce nothing."""
        wanted = [name for name in self._folders if name == "pids" or memory is not None]
        self._made += 1
        folders = {name: os.path.join(self._folders[name], str(self._made)) for name in wanted}
        group = Cgroup(folders, self._version)
        try:
            for folder in dict.fromkeys(folders.values()):
                os.mkdir(folder)
            group.bound(processes, memory)
        except OSError:
            group.remove()
            return None
        return group if folders else None

    def remove(self) -> None:
        """Removes all cgroups at the supervisor's end."""
        for place in dict.fromkeys(self._folders.values()):
            _remove_below(place)


def open_cgroups(agent: int, top: str = CGROUPS, own: str = "/proc/self/cgroup") -> Cgroups:
    """Finds out, by trying, where cgroups may be made for jobs of this agent."""
    paths = _own_paths(own)
    name = f"{PREFIX}{os.getpid()}"
    if os.path.exists(os.path.join(top, "cgroup.controllers")):
        place = _open_v2(top + paths.get("", ""), name, agent)
        return Cgroups(dict.fromkeys(CONTROLLERS, place) if place else {}, 2)
    places = {}
    for controller in CONTROLLERS:
        if controller in paths:
            base = os.path.join(top, controller) + paths[controller]
            with contextlib.suppress(OSError):
                _remove_abandoned(base)
                place = os.path.join(base, name)
                os.mkdir(place)
                places[controller] = place
    return Cgroups(places, 1)


def _open_v2(base: str, name: str, agent: int) -> str | None:
    """Makes the cgroups of version 2, where one with limits may only stand beside one with
    processes.

    So agent and supervisor move one level down. That works if nobody else is in the worker's
    cgroup, which systemd's `Delegate=yes` is for. Otherwise everything stays as it was.
    """
    leaf, place = os.path.join(base, f"{name}-self"), os.path.join(base, name)
    wanted = " ".join(f"+{controller}" for controller in CONTROLLERS)
    try:
        _remove_abandoned(base)
        os.mkdir(leaf)
    except OSError:
        return None
    try:
        for pid in (agent, os.getpid()):
            _write(leaf, "cgroup.procs", pid)
        _write(base, "cgroup.subtree_control", wanted)
        os.mkdir(place)
        _write(place, "cgroup.subtree_control", wanted)
    except OSError:
        for pid in (agent, os.getpid()):
            _try(base, "cgroup.procs", pid)
        _remove_below(place)
        _remove_below(leaf)
        return None
    return place


def _own_paths(file: str) -> dict[str, str]:
    """Maps controllers (none: version 2) to the path of this process's cgroup."""
    paths: dict[str, str] = {}
    for line in _read("", file).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path if path != "/" else ""
    return paths


def _remove_abandoned(base: str) -> None:
    """Removes what supervisors that were killed have left."""
    for name in os.listdir(base):
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            _remove_below(os.path.join(base, name))


def _remove_below(place: str) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            if entry.is_dir():
                _remove_below(entry.path)
        os.rmdir(place)


def _count(events: str, event: str) -> int:
    """Reads the number of one event from lines such as `max 3`."""
    for line in events.splitlines():
        name, _, number = line.partition(" ")
        if name == event and number.isdigit():
            return int(number)
    return 0


def _write(folder: str, name: str, value: int | str) -> None:
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(value))


def _try(folder: str, name: str, value: int | str) -> None:
    with contextlib.suppress(OSError):
        _write(folder, name, value)


def _read(folder: str | None, name: str) -> str:
    if folder is None:
        return ""
    try:
        # Read after every job; a file object would make several more system calls.
        handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(handle, READ_BYTES).decode()
        finally:
            os.close(handle)
    except OSError:
        return ""
