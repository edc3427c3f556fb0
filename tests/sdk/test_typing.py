"""A user's module, as his type checker sees it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

DECLARED = """
from typing import Any
import rota
from rota import App, AsyncClient, Client, Context, JobFailed, Retry

app = App(queue="bills")

@app.job(retries=3, cpu=1, memory="256MiB", timeout="5m")
def invoice(customer: int) -> str:
    return str(customer)

@app.job
def note(customer: int, text: str = "", *, loud: bool = False) -> None: ...

@app.job
def nothing() -> None: ...

@app.job(concurrency_key=lambda url: url)
async def crawl(url: str) -> list[str]:
    return [url]

@app.job
def report(ctx: Context, day: int) -> float:
    ctx.progress(0.5, "half")
    return ctx.attempt / 2

@app.job(priority=3)
async def later(ctx: Context, day: int = 1) -> int:
    return day

@app.job
def anything(data: Any) -> int:
    return 1
"""

GOOD = """
total: str = invoice.submit(42, priority=5).result()
plain: str = invoice(42)
invoice.submit(customer=42)
invoice.options(priority=5, delay="5m").submit(customer=42)
note.submit(1)
note.submit(1, priority=5)
note.submit(1, "x", priority=5, labels={"a": "b"})
note.submit(1, loud=True)
note.options(queue="q").submit(1, loud=True)
nothing.submit()
nothing.submit(priority=5, dependencies=[invoice.submit(1), "an-id"])
links: list[str] = crawl.submit("x").result(timeout_s=3)
half: float = report.submit(3, priority=1).result()
report(3)
day: int = later.submit().result()
anything.submit({"a": 1}, priority=1)
days = [job.result() for job in invoice.map([1, 2, 3])]
days[0].upper()
note.submit_many([(1, "a"), (2, "b")])
local: str = invoice.local(1)
inside: str = invoice.submit(1, conn=object()).id

async def main(client: AsyncClient) -> None:
    job = await invoice.submit_async(42)
    total: str = await job
    found: list[str] = await crawl("x")
    number: int = await later(3)
    async for one in client.jobs():
        one.job_id.upper()

def enqueue(client: Client, conn: Any) -> str:
    return client.submit({"name": "x"}, conn=conn)

def ask(client: Client) -> str:
    try:
        return client.submit({"name": "x"}).job_id
    except JobFailed as failed:
        return failed.log_tail

def test() -> None:
    with app.inline() as runs:
        runs.run_all()
        runs.of(invoice)[0].attempts + 1
    raise Retry("again", delay="5m")

version: str = rota.__version__
"""

WRONG = """
invoice.submit("42")
invoice.submit("42", priority=5)
invoice.submit(42, priority="high")
invoice.submit(42, prio=5)
invoice.submit()
invoice.submit(1, 2)
invoice.submit(customer="x")
invoice.options(priority=5).submit("42")
invoice.options(prio=5)
number: int = invoice.submit(42).result()
note.submit(1, 2)
note.submit(1, loud="yes")
nothing.submit(1)
crawl.submit(1)
report.submit()
report.submit("monday", priority=3)
later.submit("x")
invoice.map(["a"])
note.submit_many([(1, 2)])
app.job(retires=3)
rota.Nothing
invoice("42")
"""


def check(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """What mypy says of a module that begins with the declarations."""
    (folder / "shop.py").write_text(DECLARED + code, encoding="utf-8")
    # The sources are followed but not reported on: they have a check of their own.
    (folder / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-rota.*]\nignore_errors = True\n", encoding="utf-8"
    )
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "shop.py"],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_right_calls_pass_and_each_wrong_one_is_an_error(tmp_path: Path) -> None:
    right = check(tmp_path, GOOD)
    assert (right.returncode, right.stdout) == (0, "")
    wrong = check(tmp_path, WRONG)
    first = DECLARED.count("\n") + 2
    lines = range(first, first + len(WRONG.strip().splitlines()))
    found = {int(number) for number in re.findall(r"^shop\.py:(\d+): error", wrong.stdout, re.M)}
    missed = [(DECLARED + WRONG).splitlines()[line - 1] for line in lines if line not in found]
    assert missed == []
    assert found <= set(lines), wrong.stdout
