"""Supervisor and shims: leases, freezes, deaths, and limits of jobs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from rota.wire.jobs import Command, RequirementsView, Task
from rota.wire.queues import LimitsView
from rota.wire.workers import CompletedReport
from rota.worker.clock import BootClock
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.workspace import LONG_AGO_NS, FolderPool
from rota.worker.supervisor import client
from rota.worker.supervisor.client import Isolation, Launch, Supervisor
from tests.worker.orders import order, python, shell
from tests.worker.runner_context import Sink, alive, marked, runner_context, supervisor_here, until
from tests.worker.test_process import error

MIB = 1 << 20


@pytest.fixture(params=["auto", "subreaper"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    kind: Isolation = request.param
    return kind


@pytest.fixture(params=[True, False], ids=["groups", "watched"])
def groups(request: pytest.FixtureRequest) -> bool:
    """Whether the kernel holds jobs to their bounds, or the guard has to look."""
    return bool(request.param)


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def mark() -> str:
    """What the command lines of this test's processes have in them, and no others."""
    return secrets.token_hex(8)


def launch(script: str, **changes: object) -> Launch:
    path = {"PATH": os.environ["PATH"]}
    plain = Launch(argv=["sh", "-c", script], env=path, cwd="/", fds={}, grace_s=0.2)
    return msgspec.structs.replace(plain, **changes)


def sleeper(mark: str) -> Launch:
    """Two deaf processes, one of them with a session of its own."""
    deaf = f"trap '' TERM; while :; do sleep 0.05; done; : {mark}"
    return launch(f"setsid sh -c \"{deaf}\" & trap '' TERM; wait; : {mark}")


ReportOf = Callable[..., "asyncio.Future[CompletedReport]"]


@pytest.fixture
def report_of(tmp_path: Path, sink: Sink, isolation: Isolation, groups: bool) -> ReportOf:
    """Runs a command with both kinds of isolation and both kinds of bounds."""

    def run(task: dict[str, object], **changes: object) -> asyncio.Future[CompletedReport]:
        view = order("e1", task, **changes)
        command = msgspec.json.decode(view.task, type=Task)
        assert isinstance(command, Command)
        context = dataclasses.replace(
            runner_context(tmp_path, sink, grace_s=0.5),
            supervisor=supervisor_here(isolation, groups=groups),
        )
        return asyncio.ensure_future(ProcessRunner(view, command, context).run())

    return run


# Leases.


async def test_a_job_is_killed_at_once_when_its_lease_is_not_renewed(
    mark: str, isolation: Isolation
) -> None:
    clock = BootClock()
    tree = supervisor_here(isolation).spawn(sleeper(mark), clock.now() + 0.5)
    ended = await tree.ended
    assert clock.now() >= ended.signals[0].after_s
    assert (ended.cause, [signal.signal for signal in ended.signals]) == ("lease", ["SIGKILL"])
    assert marked(mark) == []


async def test_a_renewed_job_lives_on_and_a_lease_can_be_cut_short(mark: str) -> None:
    clock = BootClock()
    supervisor = supervisor_here()
    short = supervisor.spawn(launch("sleep 600"), clock.now() + 0.3)
    tree = supervisor.spawn(sleeper(mark), clock.now() + 0.3)
    tree.hold_until(clock.now() + 600)
    assert (await short.ended).cause == "lease"
    assert not tree.ended.done()
    tree.hold_until(clock.now())
    assert (await tree.ended).cause == "lease"


async def test_after_a_thaw_expired_jobs_end_before_any_message_is_read(
    mark: str, isolation: Isolation
) -> None:
    clock = BootClock()
    supervisor = supervisor_here(isolation)
    tree = supervisor.spawn(sleeper(mark), clock.now() + 0.5)
    await until(lambda: len(marked(mark)) == 2)
    running = marked(mark)
    os.kill(supervisor.pid, signal.SIGSTOP)
    # Said while the guard is frozen: renewals that come too late must not save the job.
    tree.hold_until(clock.now() + 600)
    over = clock.now() + 0.6
    await until(lambda: clock.now() > over)
    assert all(pid in marked(mark) for pid in running), "nobody could end it yet"
    os.kill(supervisor.pid, signal.SIGCONT)
    assert (await tree.ended).cause == "lease"
    assert marked(mark) == []


# Deaths.


async def test_a_supervisor_that_does_not_respond_is_killed_with_its_jobs_and_replaced(
    mark: str, isolation: Isolation
) -> None:
    supervisor = supervisor_here(isolation, ping_s=0.05, silence_s_max=0.3)
    tree = supervisor.spawn(sleeper(mark))
    await until(lambda: len(marked(mark)) == 2)
    watch = asyncio.create_task(supervisor.watch())
    os.kill(supervisor.pid, signal.SIGSTOP)
    assert (await tree.ended).cause == "supervisor"
    await until(lambda: marked(mark) == [])
    watch.cancel()
    assert (await supervisor.spawn(launch("exit 4")).ended).returncode == 4


async def test_a_job_that_kills_its_shim_ends_alone_and_leaves_nothing(
    mark: str,
) -> None:
    supervisor = supervisor_here("subreaper")
    neighbour = supervisor.spawn(launch("exec sleep 600"))
    script = f"(env -i setsid sh -c 'sleep 600; : {mark}' &); kill -9 $PPID; sleep 600; : {mark}"
    ended = await supervisor.spawn(launch(script)).ended
    assert ended.cause == "shim"
    assert marked(mark) == []
    assert not neighbour.ended.done()


async def test_a_job_in_a_namespace_can_neither_see_nor_kill_processes_outside() -> None:
    supervisor = supervisor_here()
    if (await supervisor.hello).isolation != "namespace":
        pytest.skip("no PID namespaces here")
    mine = (
        f"kill -0 {os.getpid()} {supervisor.pid} && exit 1; [ ! -e /proc/{os.getpid()} ] || exit 2"
    )
    script = f"{mine}; kill -9 $PPID; [ -e /proc/1 ] && [ -e /proc/$$ ] || exit 3"
    assert (await supervisor.spawn(launch(script)).ended).returncode == 0


async def test_shims_are_reused_and_carry_nothing_over(tmp_path: Path) -> None:
    supervisor = supervisor_here()
    read, write = os.pipe()
    first = "umask 000; export LEAK=1; ulimit -n 100; cd /tmp; exit 0"
    await supervisor.spawn(launch(first, env={"PATH": os.environ["PATH"], "LEAK": "2"})).ended
    first_shims = shims(supervisor)
    show = 'echo "$(umask) [$LEAK] $(ulimit -n) $PWD"; ls /proc/self/fd | tr "\\n" " "'
    ended = await supervisor.spawn(launch(show, cwd=str(tmp_path), fds={1: write})).ended
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    assert ended.returncode == 0
    assert shims(supervisor) == first_shims
    assert text.split("\n")[0].startswith("0077 [] ")
    assert text.split("\n")[0].endswith(str(tmp_path))
    assert "100" not in text.split("\n")[0].split()[2:3]
    assert text.split("\n")[1].split() == ["0", "1", "2", "3"], "the last one is that of ls"


def shims(supervisor: Supervisor) -> list[int]:
    return [child.pid for child in psutil.Process(supervisor.pid).children()]


async def test_a_hundred_jobs_at_once_all_end_and_all_descriptors_come_back() -> None:
    supervisor = supervisor_here()
    await supervisor.hello
    process = psutil.Process(supervisor.pid)
    before = process.num_fds()
    read, write = os.pipe()
    trees = [supervisor.spawn(launch("echo x", fds={1: write})) for _ in range(100)]
    os.close(write)
    ends = await asyncio.gather(*(tree.ended for tree in trees))
    assert {ended.status for ended in ends} == {0}
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"x\n" * 100, "the end is seen: nobody holds the pipe any more"
    assert process.num_fds() <= before + len(shims(supervisor))


async def test_a_supervisor_that_is_shut_down_kills_its_jobs_and_ends(
    mark: str, isolation: Isolation
) -> None:
    supervisor = Supervisor(isolation)
    tree = supervisor.spawn(sleeper(mark))
    await until(lambda: len(marked(mark)) == 2)
    await supervisor.shut_down()
    assert (await tree.ended).cause == "supervisor"
    assert not alive(supervisor.pid)
    assert marked(mark) == []


# What a job is held to.

HOG = "x = []\nfor _ in range(60): x.append(bytearray(4 << 20))\nimport time; time.sleep(600)"
"""240 MiB in small bites."""


async def test_a_job_that_exceeds_its_memory_is_ended_and_its_record_says_how_much_it_used(
    report_of: ReportOf,
) -> None:
    needs = RequirementsView(1, 64 * MIB, 0, 0, {}, [])
    report = await report_of(python(HOG), requirements=needs)
    fields = error(report)
    assert (report.status, fields["reason"], fields["allowed"]) == ("failed", "memory", 64 * MIB)
    assert str(fields["message"]).startswith("used ")
    assert str(fields["message"]).endswith(" of 64 MiB memory")
    assert int(str(fields["used"])) >= 64 * MIB
    assert report.usage is not None
    assert report.usage["memory_peak"] >= 64 * MIB
    assert fields["left"] == 0


async def test_a_job_within_its_memory_is_left_alone_and_measured(report_of: ReportOf) -> None:
    needs = RequirementsView(1, 256 * MIB, 0, 0, {}, [])
    code = "x = bytearray(32 << 20)\nfor i in range(3_000_000): pass"
    report = await report_of(python(code), requirements=needs)
    assert report.status == "succeeded", error(report)
    assert report.usage is not None
    assert 32 * MIB < report.usage["memory_peak"] < 256 * MIB
    assert 0.01 < report.usage["cpu_seconds"] < 60


async def test_the_usage_of_a_killed_job_does_not_include_earlier_jobs() -> None:
    supervisor = supervisor_here()
    burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    busy = await supervisor.spawn(launch(burn)).ended
    idle = await supervisor.spawn(launch("sleep 600", timeout_s=0.2)).ended
    assert (idle.cause, busy.cause) == ("timeout", "exit")
    assert 0 < idle.cpu < busy.cpu


BOMB = """
import os, time
made = 0
try:
    while made < 80:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except BlockingIOError:
    print(made, flush=True)
    raise
time.sleep(600)
"""
"""Goes off at 80 processes, which is few enough for any machine."""


async def test_a_fork_bomb_is_held_to_its_queue_s_process_limit(
    report_of: ReportOf, sink: Sink, groups: bool
) -> None:
    report = await report_of(python(BOMB), limits=LimitsView(processes=20))
    assert report.status == "failed"
    fields = error(report)
    if bytes(sink.log[:1]).isdigit():  # the kernel said no
        assert groups
        assert int(sink.log.split()[0]) == 19
        assert "it wanted more than the 20 processes allowed" in str(fields["message"])
    else:
        assert (fields["reason"], fields["allowed"]) == ("processes", 20)
        assert int(str(fields["used"])) > 20


async def test_a_job_is_held_to_its_limits_of_file_size_and_open_files(report_of: ReportOf) -> None:
    limits = LimitsView(file_size=MIB, open_files=16)
    big = await report_of(shell("head -c 2000000 /dev/zero > big"), limits=limits)
    assert big.status == "failed"
    many = await report_of(python("f = [open('/dev/null') for _ in range(100)]"), limits=limits)
    assert "Too many open files" in str(error(many)["tail"])


async def test_a_program_killed_for_a_large_file_is_reported_with_the_reason(
    report_of: ReportOf,
) -> None:
    task = shell("exec head -c 2000000 /dev/zero > big")
    report = await report_of(task, limits=LimitsView(file_size=MIB))
    assert error(report)["message"] == (
        "killed by SIGXFSZ; it wrote a file larger than the 1 MiB allowed"
    )


async def test_a_result_is_held_to_its_queue_s_size(report_of: ReportOf) -> None:
    task = shell('echo \'"123456789"\' > "$ROTA_RESULT"')
    report = await report_of(task, limits=LimitsView(result_size=8))
    assert "larger than 8 bytes" in str(error(report)["message"])


async def test_a_job_gains_no_privileges_and_dumps_no_core(report_of: ReportOf, sink: Sink) -> None:
    await report_of(shell("grep NoNewPrivs /proc/self/status; ulimit -c; ulimit -Hc"))
    assert bytes(sink.log).split() == [b"NoNewPrivs:", b"1", b"0", b"0"]


# Folders.


async def test_a_clean_folder_serves_the_next_job_and_a_used_one_does_not(
    tmp_path: Path, sink: Sink
) -> None:
    context = dataclasses.replace(
        runner_context(tmp_path, sink), folders=FolderPool(tmp_path, kept_max=4)
    )

    async def ran(script: str, payload: bytes = b"{}") -> CompletedReport:
        view = order("e1", shell(script), payload=msgspec.Raw(payload))
        command = msgspec.json.decode(view.task, type=Task)
        assert isinstance(command, Command)
        return await ProcessRunner(view, command, context).run()

    await ran('cat "$ROTA_PAYLOAD"; echo 1 > "$ROTA_RESULT"; exit 0', b'{"longer": "secret"}')
    (kept,) = os.listdir(tmp_path)
    report = await ran('cat "$ROTA_PAYLOAD"', b"[1]")
    assert bytes(sink.log) == b"[1]", "the log of the second alone"
    assert msgspec.json.decode(report.result) is None
    for fields in ("0.25", "0.5 whoever comes next does not hear of half a line", "0.75"):
        await ran(f'(echo "{fields}"; printf 0.9) > "$ROTA_PROGRESS"')
    assert [progress for progress, _ in sink.progress] == [0.25, 0.5, 0.75]
    await ran('touch x "$TMPDIR/y" "$ROTA_ARTIFACTS/z"; rm x "$TMPDIR/y" "$ROTA_ARTIFACTS/z"')
    assert os.listdir(tmp_path) == [kept], "it is as it was, though not untouched"
    dated_back = f"touch x; touch -d @{LONG_AGO_NS / 10**9:.9f} ."
    another_pipe = 'mkfifo -m 600 ../new; mv ../new "$ROTA_PROGRESS"'
    tampers = ("touch x", 'chmod 755 "$TMPDIR"', 'rm "$ROTA_PAYLOAD"', "touch ../x", dated_back)
    for tamper in (*tampers, another_pipe):
        await ran(tamper)
        assert kept not in os.listdir(tmp_path)
        await ran("true")
        (kept,) = os.listdir(tmp_path)


def test_the_supervisor_needs_no_installed_package() -> None:
    """So it stays small; what it imports beyond the standard library would fail here."""
    code = (
        "import sys, types; sys.modules['rota'] = p = types.ModuleType('rota');"
        f"p.__path__ = [{str(client.ROTA)!r}];"
        "import rota.worker.supervisor.supervisor_loop; print(len(sys.modules))"
    )
    child = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-I", "-S", "-c", code])
    assert child == 0


IMPERSONATES_ITS_SHIM = """
import ctypes, os, socket, sys, time
shim, get = os.pidfd_open(os.getppid()), ctypes.CDLL(None).syscall
taken = [fd for number in range(3, 64) if (fd := get(438, shim, number, 0)) >= 0]
if not taken:
    sys.exit(77)
# The guard's socket to the agent is older than the shim's own.
socket.socket(fileno=taken[-1]).sendall(bytes.fromhex(sys.argv[1]))
time.sleep(600)
"""


@pytest.mark.parametrize("message", ["0000000178", "ffffffff7878"])
async def test_a_job_that_sends_messages_in_its_shim_s_name_ends_only_itself(
    isolation: Isolation, message: str
) -> None:
    supervisor = supervisor_here(isolation)
    neighbour = supervisor.spawn(launch("exec sleep 600"))
    argv = [sys.executable, "-c", IMPERSONATES_ITS_SHIM, message]
    ended = await supervisor.spawn(launch("", argv=argv, timeout_s=20.0)).ended
    if ended.cause == "exit" and ended.returncode == 77:
        pytest.skip("the kernel does not let it")
    assert ended.cause == "shim"
    assert not neighbour.ended.done()
    assert supervisor.deaths == 0
