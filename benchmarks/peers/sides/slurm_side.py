"""Slurm's side: arrays of batch jobs, and single ones with a start signal, by its own commands."""

from __future__ import annotations

import os
import subprocess

PORT = os.environ["PEERS_SIGNAL_PORT"]
ARRAY_MAX = 100_000
KINDS = {
    "noop": "true",
    "spin": f"PYTHONPATH={os.getcwd()} python3 -c 'import start_signal; start_signal.spin()'",
}
_poured = 0


def _submit(script: str, *options: str) -> None:
    command = ["sbatch", "--quiet", "--output=/dev/null", "--chdir=/", *options]
    text = f"#!/bin/bash\n{script}\n"
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)


def submit_jobs(kind: str, count: int) -> None:
    global _poured
    _poured += count
    for first in range(0, count, ARRAY_MAX):
        last = min(ARRAY_MAX, count - first) - 1
        _submit(KINDS[kind], f"--array=0-{last}")


def call() -> None:
    _submit(f"printf runs > /dev/udp/127.0.0.1/{PORT}")


def recorded() -> int:
    """Counts jobs that neither wait nor run."""
    states = "PENDING,RUNNING,COMPLETING,CONFIGURING"
    listed = subprocess.run(
        ["squeue", "--noheader", "--array", "--states", states, "--format=%i"],
        capture_output=True,
        text=True,
        check=True,
    )
    return _poured - len(listed.stdout.splitlines())
