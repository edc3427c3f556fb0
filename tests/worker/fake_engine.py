"""Fake docker or podman: a service that runs containers, and the program that talks to it.

As with the real ones, what runs in a container is no child of the program, so ending the program
does not end it. A container is a plain process of this machine, kept in a file until it is removed.
Run as `fake_engine.py STATE serve` or, by the program on PATH, as `fake_engine.py STATE ARGS...`.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


def serve(state: Path) -> None:
    """Runs until it is killed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(state / "socket"))
    listener.listen()
    (state / "service").touch()
    processes: dict[str, subprocess.Popen[bytes]] = {}
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, state, processes), daemon=True).start()


def _answer(
    connection: socket.socket, state: Path, processes: dict[str, subprocess.Popen[bytes]]
) -> None:
    with connection, connection.makefile("rb") as reader:
        request = json.loads(reader.readline())
        container = state / request["name"]
        if request["do"] == "rm":
            if container.exists():
                processes[container.name].kill()
                processes[container.name].wait()
                container.unlink()
            connection.sendall(b"0")
            return
        child = subprocess.Popen(
            request["command"],
            env=request["env"],
            cwd=request["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        processes[container.name] = child
        container.write_text(str(child.pid))
        assert child.stdout is not None
        try:
            for output in child.stdout:
                connection.sendall(b"> " + output)
            connection.sendall(f"{child.wait()}\n".encode())
        except OSError:
            child.stdout.read()  # the program was ended; the container goes on


def ask(state: Path, request: dict[str, Any]) -> int:
    """Sends a request to the service; returns the exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(state / "socket"))
        connection.sendall(json.dumps(request).encode() + b"\n")
        for output in connection.makefile("rb"):
            if not output.startswith(b"> "):
                return int(output)
            sys.stdout.buffer.write(output[2:])
            sys.stdout.flush()
    return 125


def main(state: Path, args: list[str]) -> int:
    """Reads the command line as podman does."""
    if args == ["serve"]:
        serve(state)
    with (state / "calls").open("a") as calls:
        calls.write(json.dumps([args, dict(os.environ)]) + "\n")
    if args[0] == "ps":
        return 0 if (state / "service").exists() else 1
    if args[0] == "inspect":
        print("true" if (state / "oom-killed").exists() else "false")  # noqa: T201
        return 0
    if args[0] == "rm":
        return ask(state, {"do": "rm", "name": args[-1]})
    given = dict(itertools.pairwise(args))
    folder = given["--volume"].partition(":")[0]
    lines = Path(given["--env-file"]).read_text().splitlines()
    pairs = [connection.split("=", 1) for connection in lines]
    env = {name: value.replace("/rota/", f"{folder}/", 1) for name, value in pairs}
    command, name = args[args.index("image") + 1 :], given["--name"]
    run = {"do": "run", "name": name, "command": command, "env": env, "cwd": f"{folder}/work"}
    return ask(state, run)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
