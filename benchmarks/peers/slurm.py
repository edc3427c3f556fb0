"""Starts a Slurm of one node on loopback: munged, slurmctld and slurmd, in a folder of its own.

Settings are those of Slurm's page on high throughput that matter on one machine: no accounting, no
energy or profiling plugins, processes found by /proc, finished jobs forgotten soon.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.peers.installing import UnavailableError, program
from benchmarks.peers.processes import free_port, running, until_listening

CPUS = 64
"""Declared, not real: jobs that do nothing should wait for the scheduler, not for a core."""
_CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1000,default_queue_depth=10000
MaxArraySize=100001
MaxJobCount=200000
MinJobAge=2
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@contextmanager
def slurm(place: Path) -> Iterator[dict[str, str]]:
    if os.geteuid() != 0:
        raise UnavailableError("slurmctld and slurmd are started as root only")
    programs = {
        name: program(name, package)
        for name, package in (
            ("munged", "munge"),
            ("slurmctld", "slurmctld"),
            ("slurmd", "slurmd"),
            ("sbatch", "slurm-client"),
        )
    }
    controller, node = free_port(), free_port()
    host = socket.gethostname().partition(".")[0]
    configuration = place / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(host=host, controller=controller, node=node, place=place, cpus=CPUS),
        "utf-8",
    )
    for folder in ("state", "spool"):
        (place / folder).mkdir()
    environment = {"SLURM_CONF": str(configuration)}
    with ExitStack() as stack:
        stack.enter_context(running(_munged(programs["munged"], place), place, {}))
        leader = (programs["slurmctld"], "-D", "-i", "-f", str(configuration))
        stack.enter_context(running(leader, place, environment))
        until_listening(controller)
        # Not given as the worker to freeze: its controller would take a silent node for a dead one.
        worker = (programs["slurmd"], "-D", "-f", str(configuration))
        stack.enter_context(running(worker, place, environment))
        until_listening(node)
        yield environment


def _munged(program_path: str, place: Path) -> tuple[str, ...]:
    key = place / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    return (
        *(program_path, "--foreground", "--force", "--key-file", str(key)),
        *("--socket", str(place / "munge.socket"), "--pid-file", str(place / "munge.pid")),
        *("--log-file", str(place / "munge.log"), "--seed-file", str(place / "munge.seed")),
    )
