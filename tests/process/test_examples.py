"""Example workers in other languages, against the real server."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rota.sdk import Client
from tests.process.cell import PATIENCE_S, Cell, is_alive, shell, until

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
TYPESCRIPT = "typescript@6.0.3"
INSTALL_S_MAX = 120
STRIP = """
const ts = require("typescript"), fs = require("node:fs");
const options = { module: "esnext", target: "es2022", verbatimModuleSyntax: true };
const { outputText } = ts.transpileModule(fs.readFileSync(process.argv[2], "utf8"), {
  compilerOptions: options,
});
fs.writeFileSync(process.argv[3], outputText);
"""


def node_version() -> tuple[int, int]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = re.findall(r"\d+", said)[:2]
    return int(major), int(minor)


@pytest.fixture(scope="session")
def typescript_worker(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to run it: as it is where Node takes types out by itself, else through the compiler."""
    source = EXAMPLES / "worker-typescript" / "worker.ts"
    version = node_version()
    if version >= (22, 18):
        return ["node", str(source)]
    if version >= (22, 6):
        return ["node", "--experimental-strip-types", str(source)]
    if version < (18, 0):
        pytest.skip(f"node {version[0]} has no fetch: the example needs 18")
    folder = tmp_path_factory.mktemp("typescript")
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    try:
        subprocess.run([*npm, TYPESCRIPT], check=True, capture_output=True, timeout=INSTALL_S_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"this node needs {TYPESCRIPT}, and npm could not install it: {error}")
    plain = folder / "worker.mjs"
    (folder / "strip.cjs").write_text(STRIP)
    strip = ["node", str(folder / "strip.cjs"), str(source), str(plain)]
    subprocess.run(strip, check=True, timeout=INSTALL_S_MAX)
    return ["node", str(plain)]


@pytest.fixture(scope="session")
def bash_worker() -> list[str]:
    for program in ("bash", "curl", "jq", "setsid", "timeout"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return ["bash", str(EXAMPLES / "worker-bash" / "worker.sh")]


@pytest.fixture(params=["typescript", "bash"])
def command(request: pytest.FixtureRequest) -> list[str]:
    """The command line of one of the examples."""
    return list(request.getfixturevalue(f"{request.param}_worker"))


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    # Every step of the one in Bash is a process or two: on busy cores it needs time to renew.
    with Cell(tmp_path, lease_ttl="6s") as one:
        one.up()
        yield one


class Example:
    """One of the example workers, running."""

    def __init__(self, cell: Cell, command: Sequence[str]) -> None:
        env = {**cell.env, "ROTA_URL": cell.url, "ROTA_TOKEN": cell.token, "ROTA_NAME": "example"}
        self._log = cell.folder / "said-example"
        with self._log.open("wb") as said:
            self.process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def text(self) -> str:
        return self._log.read_text()

    def until_said(self, word: str) -> None:
        until(lambda: word in self.text() or self.process.poll() is not None, word)
        assert word in self.text(), self.text()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        """With whatever it still waits with: the one in Bash leaves sleeps and calls behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def example(cell: Cell, command: list[str]) -> Iterator[Example]:
    one = Example(cell, command)
    try:
        one.until_said("registered")
        yield one
    finally:
        one.end()


@pytest.fixture
def client(cell: Cell) -> Client:
    return cell.client()


def started(cell: Cell, name: str) -> int:
    """The process of a job, once it has begun; the examples put none into a namespace."""
    return int(cell.until_witnessed(name)[0].split()[2])


def test_jobs_run_and_end_as_they_should(cell: Cell, client: Client, example: Example) -> None:
    script = (
        'echo "out $NAME $ROTA_ATTEMPT"; echo err >&2; printf "a b\\303\\274\\n";'
        ' printf "{\\"got\\": %s}" "$(cat "$ROTA_PAYLOAD")" > "$ROTA_RESULT"'
    )
    task = {"kind": "command", "argv": ["sh", "-c", script], "env": {"NAME": "a  b=c"}}
    good = client.submit({"name": "good", "task": task, "payload": {"x": [1, "ü"]}})
    bad = client.submit(shell("echo no; exit 3"))
    quiet = client.submit({"name": "quiet", "task": {"kind": "noop"}})
    late = client.submit(shell("sleep 600", "late", timeout="1s"))
    done = cell.until_status(client, good.job_id, "succeeded", "failed")
    assert (done.status, done.result) == ("succeeded", {"got": {"x": [1, "ü"]}})
    lines = sorted(client.logs(good.job_id).decode().splitlines())
    assert lines == ["a bü", "err", "out a  b=c 1"]
    failed = cell.until_status(client, bad.job_id, "succeeded", "failed")
    assert failed.status == "failed"
    assert "3" in failed.error["message"]
    assert client.logs(bad.job_id) == b"no\n"
    cell.until_status(client, quiet.job_id, "succeeded")
    assert cell.until_status(client, late.job_id, "failed").attempt == 1


def test_a_long_log_arrives_whole(cell: Cell, client: Client, example: Example) -> None:
    job = client.submit(shell("seq 1 200000"))
    cell.until_status(client, job.job_id, "succeeded")
    assert client.logs(job.job_id) == "".join(f"{n}\n" for n in range(1, 200_001)).encode()


def test_a_cancelled_job_is_stopped_with_all_it_started(
    cell: Cell, client: Client, example: Example
) -> None:
    job = client.submit(cell.witness_job("stubborn", "sleep 600 & wait"))
    pid = started(cell, "stubborn")
    family = [pid, *(child.pid for child in psutil.Process(pid).children())]
    client.cancel(job.job_id)
    cell.until_status(client, job.job_id, "cancelled")
    until(lambda: not any(map(is_alive, family)), "the end of its processes")


@pytest.mark.slow  # a lease has to run out, and theirs are long
def test_a_job_that_the_server_took_back_is_ended_and_its_report_refused(
    cell: Cell, client: Client, example: Example
) -> None:
    job = client.submit(cell.witness_job("taken", "sleep 600"))
    first = started(cell, "taken")
    example.process.send_signal(signal.SIGSTOP)
    cell.worker("other")
    cell.until_witnessed("taken", 2)
    assert is_alive(first)
    example.process.send_signal(signal.SIGCONT)
    until(lambda: not is_alive(first), "the end of the job that was taken away")
    assert client.job(job.job_id).status == "running"
    assert len(cell.witnessed("taken")) == 2


def test_an_example_worker_drains_on_sigterm(cell: Cell, client: Client, example: Example) -> None:
    gate = cell.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    job = client.submit(cell.witness_job("last", waits))
    cell.until_witnessed("last")
    example.process.send_signal(signal.SIGTERM)
    until(lambda: client.workers()[0].status == "draining", "a worker that drains")
    later = client.submit(shell("true", "later"))
    gate.touch()
    assert example.wait() == 0
    assert client.job(job.job_id).status == "succeeded"
    assert client.job(later.job_id).status == "queued"
    assert [worker.status for worker in client.workers()] in ([], ["offline"])


def test_an_idle_example_worker_stops_at_once(cell: Cell, client: Client, example: Example) -> None:
    example.process.send_signal(signal.SIGTERM)
    assert example.wait() == 0
