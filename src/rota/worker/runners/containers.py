"""Containers by podman or docker: finds the engine, and builds its command lines."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rota.wire.jobs import Container
from rota.wire.queues import LimitsView
from rota.wire.workers import OrderView

EngineChoice: TypeAlias = Literal["auto", "podman", "docker", "none"]

FOLDER_INSIDE = "/rota"
"""Path of the job's folder in a container."""
ENGINES = ("podman", "docker")
PROBE_S = 10.0
"""For a program to show that it can run containers."""
ENGINE_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"),
    *(
        "XDG_DATA_HOME",
        "DBUS_SESSION_BUS_ADDRESS",
        "DOCKER_HOST",
        "DOCKER_CONFIG",
        "DOCKER_CONTEXT",
    ),
    *("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "CONTAINER_HOST", "CONTAINERS_CONF"),
    *("REGISTRY_AUTH_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Variables of the agent that the engine's program needs. None comes from a job: a job's variables
could make that program talk to another engine, or load other code."""


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """Program that runs containers here, and its command lines."""

    program: str
    kind: Literal["podman", "docker"]
    options: Sequence[str] = ()
    """Added by the operator to every run."""

    def run(
        self, order: OrderView, task: Container, folder: Path, devices: Sequence[int]
    ) -> list[str]:
        """Builds the command line of one execution. Its variables are in a file: every user of the
        machine can read the command lines of processes."""
        limits = order.limits or LimitsView()
        return [
            *(self.program, "run", "--name", container_name(order), "--label", "rota=execution"),
            *("--env-file", str(folder / ENV_FILE), "--volume", f"{folder}:{FOLDER_INSIDE}:Z"),
            *("--workdir", f"{FOLDER_INSIDE}/work", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(limits.processes)),
            *("--ulimit", f"nofile={limits.open_files}:{limits.open_files}"),
            *self._amounts(order),
            *self._devices(devices),
            *self._user(),
            *self.options,
            task.image,
            *task.argv,
        ]

    def remove(self, order: OrderView, folder: Path) -> list[str]:
        """Builds the command that ends and removes the container and records how it ended: only the
        engine knows whether it ran out of memory."""
        # Podman would give a second grace period; the job has had its own.
        at_once = ("--time", "0") if self.kind == "podman" else ()
        args = (container_name(order), str(folder / END_FILE), "--force", "--volumes", *at_once)
        return ["/bin/sh", "-c", REMOVE_SCRIPT, "rota", self.program, *args]

    def _amounts(self, order: OrderView) -> list[str]:
        needs = order.requirements
        found = ["--cpus", f"{needs.cpu:g}"] if needs.cpu else []
        if needs.memory:
            found += ["--memory", f"{needs.memory}b", "--memory-swap", f"{needs.memory}b"]
        return found

    def _devices(self, devices: Sequence[int]) -> list[str]:
        if not devices:
            return []
        if self.kind == "docker":
            return ["--gpus", f'"device={",".join(map(str, devices))}"']
        return [arg for one in devices for arg in ("--device", f"nvidia.com/gpu={one}")]

    def _user(self) -> list[str]:
        """Runs as this user, so that files are its own: docker's root is the machine's, podman's is
        this user already."""
        return ["--user", f"{os.getuid()}:{os.getgid()}"] if self.kind == "docker" else []


ENV_FILE = "container.env"
END_FILE = "container.end"
REMOVE_SCRIPT = """\
engine=$1 name=$2 end=$3; shift 3
rm -f "$end" 2>/dev/null; set -C
"$engine" inspect --format '{{.State.OOMKilled}}' "$name" >"$end" 2>/dev/null
exec "$engine" rm "$@" "$name"
"""
"""Writes only to a new file: the folder is the container's too, which may have put a link there to
a file of the machine."""


def find_engine(choice: EngineChoice, options: Sequence[str] = ()) -> ContainerEngine | None:
    """Returns the chosen engine, or the first that works; None if there is none.

    Probing takes a moment at the agent's start: a program without its service would take jobs only
    to fail them.
    """
    for kind in ENGINES:
        program = shutil.which(kind) if choice in ("auto", kind) else None
        if program is not None and _works(program):
            return ContainerEngine(program, "podman" if kind == "podman" else "docker", options)
    return None


def _works(program: str) -> bool:
    # `ps` needs what `run` needs: the service, or the storage. `info` takes several times as
    # long: podman's asks the package manager about each program it uses.
    try:
        return not subprocess.run(
            [program, "ps", "--quiet"],
            env=engine_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_S,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def engine_environment() -> dict[str, str]:
    """Environment of the engine's own program."""
    env = {name: os.environ[name] for name in ENGINE_VARIABLES if name in os.environ}
    env.setdefault("PATH", os.defpath)
    return env


def _inside(value: str, outside: str) -> str:
    """Translates a path in the job's folder to its path in the container; keeps every other
    value."""
    return FOLDER_INSIDE + value.removeprefix(outside) if value.startswith(outside) else value


def write_env(folder: Path, env: Mapping[str, str]) -> None:
    """Writes the variables of a container to a file, with paths as the container sees them."""
    outside = str(folder)
    lines = [f"{name}={_inside(value, outside)}\n" for name, value in env.items()]
    handle = os.open(folder / ENV_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(lines)


def out_of_memory(folder: Path) -> bool:
    """Whether the container ran out of memory; False also where that is not known."""
    try:
        return (folder / END_FILE).read_bytes().strip() == b"true"
    except OSError:
        return False


def container_name(order: OrderView) -> str:
    return f"rota-{order.execution_id}"
