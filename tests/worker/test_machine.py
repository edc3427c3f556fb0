"""Detection of machines, from trees of files like those of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.worker.machine import (
    GpuAllocator,
    detect,
    detect_cpu,
    detect_memory,
    gpu_indices,
    gpu_numbers,
)

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:  8388608 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_without_limits_offers_all_it_has(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/self/cgroup": "0::/user.slice\n"})
    assert detect_cpu(root, 8) == 8
    assert detect_memory(root) == 8 * GIB


def test_a_limit_of_cgroup_version_2_bounds_cpus_and_memory(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
        },
    )
    assert detect_cpu(root, 8) == 1.5
    assert detect_memory(root) == 2 * GIB, "the limit of a parent holds too"


def test_inside_a_container_the_limits_are_at_the_top_of_what_it_sees(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../elsewhere\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
        },
    )
    assert detect_cpu(root, 8) == 0.5
    assert detect_memory(root) == GIB


def test_a_quota_of_cgroup_version_1_counts_as_well(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box\n3:cpu,cpuacct:/box\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert detect_cpu(root, 8) == 2
    assert detect_memory(root) == GIB


def test_a_limit_above_what_the_machine_has_changes_nothing(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    assert detect_cpu(write(tmp_path, files), 2) == 2


def test_gpus_are_the_numbered_devices_only(tmp_path: Path) -> None:
    root = write(
        tmp_path, {f"dev/{name}": "" for name in ("nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm")}
    )
    assert gpu_indices(root) == [0, 1]


def test_this_machine_offers_something(tmp_path: Path) -> None:
    found = detect(tmp_path)
    assert found.cpu > 0
    assert found.memory > 0
    assert found.storage > 0
    assert "linux" in found.capabilities


@pytest.mark.parametrize(
    ("found", "configured", "wanted"),
    [
        ([0, 1], None, [0, 1]),
        ([], None, []),
        ([], 0, []),
        ([], 2, [0, 1]),
        ([], 0.5, [0]),
        ([1], 2, [0, 1]),
        ([2, 3], 1, [2, 3]),
    ],
)
def test_gpus_that_the_operator_configures_have_numbers_too(
    found: list[int], configured: float | None, wanted: list[int]
) -> None:
    assert list(gpu_numbers(found, configured)) == wanted


def test_whole_gpus_are_allocated_and_given_back() -> None:
    devices = GpuAllocator([0, 1, 2])
    assert devices.take("a", 2) == [0, 1]
    assert devices.take("b", 2) == [], "only one is left"
    devices.give_back("a")
    assert devices.take("b", 2) == [0, 1]


def test_fractions_of_a_gpu_share_one_and_leave_the_others_whole() -> None:
    devices = GpuAllocator([0, 1])
    assert devices.take("a", 0.5) == [0]
    assert devices.take("b", 0.5) == [0]
    assert devices.take("c", 1) == [1]
    assert devices.take("d", 0.25) == []


@pytest.mark.parametrize("amount", [0.5, 1.0, 1.5])
def test_giving_back_gpus_that_were_never_allocated_changes_nothing(amount: float) -> None:
    devices = GpuAllocator([0, 1])
    devices.give_back("nobody")
    assert devices.take("a", amount)
