"""Parts of the supervisor: messages with descriptors, and cgroups."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.worker.supervisor.cgroups import open_cgroups
from rota.worker.supervisor.messages import (
    NO_NUMBER,
    NO_PROGRAM,
    PROGRAM_ENDED,
    TREE_ENDED,
    Bounds,
    Channel,
    ShimMessage,
    pack_job,
    read_shim_message,
    unpack_job,
)
from rota.worker.supervisor.shim import Shim
from rota.worker.supervisor.supervisor_loop import SupervisedJob


@contextmanager
def channels() -> Iterator[tuple[Channel, Channel]]:
    one, two = socket.socketpair()
    for end in (one, two):
        end.setblocking(False)  # noqa: FBT003  (it takes no names)
    ends = Channel(one, takes_fds=True), Channel(two, takes_fds=True)
    yield ends
    for channel in ends:
        channel.close()


def name_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, 1, 100, 100_000, 400_000]), st.integers(0, 4)),
        st.just("receive"),
    ),
    max_size=20,
)


@given(steps)
def test_messages_and_descriptors_arrive_in_order_whenever_the_other_side_reads(
    steps: list[tuple[int, int] | str],
) -> None:
    with tempfile.TemporaryDirectory() as folder, channels() as (here, there):
        sent: list[tuple[bytes, list[str]]] = []
        messages: list[bytes] = []
        for step in steps:
            if isinstance(step, str):
                messages += there.receive() or []
                continue
            number, (size, count) = len(sent), step
            names = [f"{folder}/{number}-{k}" for k in range(count)]
            files = [os.open(name, os.O_CREAT | os.O_RDONLY) for name in names]
            sent.append((b"%d" % number + bytes(size), names))
            here.send(sent[-1][0], files)
            for file in files:
                os.close(file)
        while len(messages) < len(sent):
            here.flush()
            messages += there.receive() or []
        assert here.flush()
        assert messages == [body for body, _ in sent]
        for _, names in sent:
            taken = there.take_fds(len(names))
            assert [name_of(fd) for fd in taken] == names
            assert not any(os.get_inheritable(fd) for fd in taken)
            for fd in taken:
                os.close(fd)


def test_a_channel_whose_other_side_is_gone_discards_queued_messages() -> None:
    with channels() as (here, there):
        while here.send(b"x" * 100_000):
            pass
        before = os.listdir("/proc/self/fd")
        with open(os.devnull) as file:
            assert not here.send(b"x", [file.fileno()]), "nobody reads, and yet nobody waits"
        there.close()
        assert here.flush()
        assert len(os.listdir("/proc/self/fd")) == len(before) - 1, "the other side's own"
        assert here.send(b"x")
        assert here.receive() is None


def test_cgroup_version_2_moves_agent_and_supervisor_and_enables_both_controllers(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.write_text("0::/unit\n")
    top = tmp_path / "fs"
    (top / "unit").mkdir(parents=True)
    (top / "cgroup.controllers").write_text("memory pids")
    groups = open_cgroups(42, str(top), str(own))
    assert groups.kinds() == {"memory": "cgroup v2", "pids": "cgroup v2"}
    assert (top / "unit/cgroup.subtree_control").read_text() == "+memory +pids"
    place = top / "unit" / f"rota-{os.getpid()}"
    assert (place / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (top / "unit" / f"rota-{os.getpid()}-self/cgroup.procs").exists()
    group = groups.make(20, 1 << 20)
    assert group is not None
    assert (place / "1/pids.max").read_text() == "21", "its shim counts too"
    assert (place / "1/memory.max").read_text() == str(1 << 20)
    (place / "1/memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (place / "1/memory.peak").write_text("4096\n")
    (place / "1/pids.events").write_text("max 7\n")
    assert (group.killed_for_memory(), group.peak(), group.forks_refused()) == (True, 4096, 7)


@pytest.mark.parametrize(("peak", "used"), [("4096\n", 4096), (None, 1 << 20)])
def test_a_job_that_the_kernel_killed_with_its_shim_is_reported_as_out_of_memory(
    tmp_path: Path, peak: str | None, used: int
) -> None:
    """Version 2 ends all of a group at once; kernels before 5.19 do not say what it had."""
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs/cgroup.controllers").write_text("memory pids")
    group = open_cgroups(42, str(tmp_path / "fs"), str(tmp_path / "own")).make(20, 1 << 20)
    assert group is not None
    (folder,) = (tmp_path / "fs").glob("rota-*/1")
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    if peak is not None:
        (folder / "memory.peak").write_text(peak)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shim = Shim(1, ours, Bounds(memory=1 << 20))
        shim.group = group
        request = {"key": 1, "after": None, "grace": 5.0, "timeout": None, "deadline": None}
        job = SupervisedJob(request, shim, now=0.0)
        job.cause = "shim"
        group.remove()
        shutil.rmtree(folder)
        account = job.end_report()
    assert (account["cause"], account["used"]) == ("memory", used)


def test_without_permission_there_are_no_cgroups(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n3:pids:/\n0::/\n")
    groups = open_cgroups(42, str(tmp_path / "nowhere"), str(own))
    assert groups.kinds() == {}
    assert groups.make(20, 1 << 20) is None


def test_cgroups_of_dead_supervisors_are_removed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("3:pids:/\n")
    dead, alive = tmp_path / "pids/rota-999999999/1", tmp_path / f"pids/rota-{os.getppid()}"
    dead.mkdir(parents=True)
    alive.mkdir()
    assert open_cgroups(42, str(tmp_path), str(own)).kinds() == {"pids": "cgroup v1"}
    assert not dead.parent.exists()
    assert alive.exists()


def test_a_program_gets_its_arguments_and_variables_unchanged() -> None:
    argv = ["printf", "", "ü\n", "%s"]
    env = {"A": "", "B": "x=y", "C": "ü"}
    request = unpack_job(pack_job(argv, env, "/tmp", [(1, 0), (2, 0)]))
    assert request == (
        [message.encode() for message in argv],
        {name.encode(): value.encode() for name, value in env.items()},
        b"/tmp",
        ((1, 0), (2, 0)),
    )
    assert unpack_job(pack_job(["true"], {}, "/", []))[1] == {}


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800"])
@pytest.mark.parametrize("place", ["argv", "env", "cwd"])
def test_text_that_no_program_can_be_given_is_refused_before_it_is_sent(
    text: str, place: str
) -> None:
    argv = ["true", text] if place == "argv" else ["true"]
    env = {"A": text} if place == "env" else {"A": "b"}
    with pytest.raises(ValueError, match=r"null byte|surrogates"):
        pack_job(argv, env, text if place == "cwd" else "/", [])


def test_a_shim_s_message_is_decoded_unchanged_and_anything_else_is_refused() -> None:
    for message in (
        ShimMessage(NO_PROGRAM, NO_NUMBER, text="no ü here"),
        ShimMessage(kind=3, number=9, peak=1 << 40, cpu_s=0.25),
    ):
        assert read_shim_message(message.packed()) == message
    with pytest.raises(ValueError, match="a shim sent"):
        read_shim_message(b"{}")


@pytest.mark.parametrize(
    "message",
    [
        ShimMessage(TREE_ENDED, -1),
        ShimMessage(PROGRAM_ENDED, 0x137F),
        ShimMessage(TREE_ENDED, peak=-1),
        ShimMessage(TREE_ENDED, cpu_s=float("nan")),
        ShimMessage(TREE_ENDED, cpu_s=float("inf")),
    ],
)
def test_an_exit_status_that_no_process_can_have_is_refused(message: ShimMessage) -> None:
    with pytest.raises(ValueError, match="impossible"):
        read_shim_message(message.packed())
