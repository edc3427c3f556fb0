"""Functions of a user: the warm children of the tests import a copy of this file."""

# ruff: noqa: T201, ASYNC110, ASYNC240, ASYNC251  (users do such things)

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import datetime
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import rota
from rota import App

app = App()
calls = 0
PROCESS = os.urandom(8).hex()
"""Numbers of processes may be the same in different namespaces."""


@dataclasses.dataclass
class Invoice:
    customer: int
    at: datetime.date


class StubbornError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def add(a, b=10):
    return a + b


def count():
    global calls
    calls += 1
    return [PROCESS, calls]


def who():
    return PROCESS


def invoice():
    return Invoice(42, datetime.date(2026, 1, 5))


def strange():
    return {"lock": threading.Lock()}


def not_a_number():
    return [1.0, float("nan")]


def in_itself():
    found = []
    found.append(found)
    return found


def large(size):
    return "x" * size


def boom(text):
    secret = "s3cret"
    raise LookupError(text + secret[:0])


def stubborn():
    raise StubbornError


def fail():
    raise rota.Fail("no such customer")


def retry():
    raise rota.Retry("busy", delay=7)


def leave(code):
    sys.exit(code)


def vanish(code):
    os._exit(code)


def crash():
    ctypes.string_at(0)


def fork_and_return():
    os.fork()
    return "once"


def tear_our_pipe():
    os.write(4, b"\xff" * 64)
    time.sleep(60)


def say():
    print("one")
    print("two", file=sys.stderr)
    os.write(1, b"three\n")
    subprocess.run(["echo", "four"], check=True)
    logging.getLogger("shop").info("five")
    sys.stdout.write("six")


def flood(size):
    sys.stdout.write("x" * 79 + "\n")
    for _ in range(size // 80):
        sys.stdout.write("y" * 79 + "\n")


def environment():
    return dict(os.environ)


def place():
    return os.getcwd()


def move(folder):
    os.chdir(folder)
    sys.stdout = None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def spin():
    while True:
        pass


def wait_long(mark, ignore=False):
    if ignore:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        Path(mark).write_text(str(os.getpid()))
        time.sleep(60)
    finally:
        Path(mark + ".cleaned").touch()


def start_sleeper(mark, seconds):
    child = subprocess.Popen(["sleep", seconds])
    Path(mark).touch()
    child.wait()


def hog():
    held = bytearray(512 * 1024 * 1024)
    for place in range(0, len(held), 4096):
        held[place] = 1
    time.sleep(60)


def sized(size):
    held = bytearray(size)
    for place in range(0, len(held), 4096):
        held[place] = 1
    return len(held)


def keep(size):
    sys.modules[__name__].kept = bytearray(os.urandom(1) * size)
    return PROCESS


async def gentle(number):
    await asyncio.sleep(0.01)
    return [PROCESS, number]


async def meet(folder, others, me):
    """Returns once all the others are here, too: they must run at the same time."""
    print(f"hello from {me}")
    (Path(folder) / me).touch()
    while len(os.listdir(folder)) < others:
        await asyncio.sleep(0.005)
    await asyncio.to_thread(print, f"bye from {me}")
    if me == "bad":
        raise ValueError("bad one")
    return [PROCESS, me]


async def patient(mark):
    Path(mark).touch()
    try:
        await asyncio.sleep(60)
    finally:
        Path(mark + ".cleaned").touch()


async def fatal():
    os._exit(9)


def gpus():
    return [PROCESS, os.environ.get("CUDA_VISIBLE_DEVICES")]


async def blocking(mark):
    Path(mark).touch()
    time.sleep(60)


@app.job
def registered(a: int, *, b: int = 1) -> int:
    return a * b


@app.job
async def registered_gentle(number: int) -> int:
    await asyncio.sleep(0)
    return number


@app.job
def told(ctx, text: str) -> dict:
    ctx.progress(0.5, "half way")
    ctx.log(f"logged {text}")
    return {
        "job_id": ctx.job_id,
        "execution_id": ctx.execution_id,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "payload": ctx.payload,
        "deadline": ctx.deadline is not None,
    }
