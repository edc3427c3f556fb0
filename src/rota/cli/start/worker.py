"""Starts a worker agent with what the command line says about this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.connect import endpoint_of
from rota.cli.job_spec import custom_of
from rota.cli.options import NumberRange, duration, name_only, pair, size
from rota.cli.problems import refuse_all_but_linux
from rota.cli.start.server_log import log_option
from rota.processes.event_loop import run_event_loop
from rota.wire.formats import Duration

if TYPE_CHECKING:
    from rota.worker.agent import WorkerConfig

PORT_MAX = 65_535
SILENCE_MS_MIN = 1_000
"""Any less and a server that is only busy would be taken for one that is gone."""


def _address(value: Any) -> tuple[str, int]:
    """Reads `9464`, or `0.0.0.0:9464`."""
    host, _, port = str(value).rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise click.BadParameter(f"{value!r} is not an address: write 9464, or 10.0.0.5:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command()
@click.option(
    "--server",
    multiple=True,
    metavar="URL",
    help="Server of the cell; may repeat; default: ROTA_URL.",
)
@click.option(
    "--no-follow", is_flag=True, help="Use only these servers, even if they name another leader."
)
@click.option(
    "--silence", type=duration, default="3s", show_default=True, metavar="DURATION",
    help="Ask another server when an answer is this late.",
)  # fmt: skip
@click.option("--name", help="Name of the worker; default: host name and process id.")
@click.option("--cpu", type=NumberRange(0), help="Cores to offer; default: all that are found.")
@click.option("--memory", type=size, metavar="SIZE", help="Memory to offer.")
@click.option("--storage", type=size, metavar="SIZE", help="Disk space to offer.")
@click.option("--gpu", type=NumberRange(0), help="GPUs to offer.")
@click.option(
    "--custom",
    multiple=True,
    type=pair,
    metavar="KEY=VALUE",
    help="Custom resource to offer, such as licence=1.",
)
@click.option("--capability", "-c", multiple=True, help="Capability of the worker; may repeat.")
@click.option("--queue", "-q", multiple=True, help="Queue to serve; may repeat; default: all.")
@click.option(
    "--label", "-l", multiple=True, type=pair, metavar="KEY=VALUE",
    help="Label that jobs can require or prefer; host defaults to this machine's name.",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="WORD",
    help="Taint: accept only jobs that request this resource or capability, or tolerate it.",
)  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1), help="Maximum number of executions at once.")
@click.option(
    "--spare", type=click.IntRange(0), metavar="COUNT",
    help="Short jobs to prefetch; 0: none; default: 32 for each core.",
)  # fmt: skip
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the jobs' working directories.",
)
@click.option(
    "--grace", type=duration, default="5s", show_default=True, metavar="DURATION",
    help="Time between asking a job to stop and killing it.",
)  # fmt: skip
@click.option(
    "--isolation", type=click.Choice(("auto", "subreaper")), default="auto", show_default=True,
    help="Isolate jobs in PID namespaces if permitted (auto), or never.",
)  # fmt: skip
@click.option("--app", metavar="PACKAGE.MODULE:APP", help="Run the functions of this rota.App.")
@click.option(
    "--http-allow", multiple=True, metavar="HOST|CIDR",
    help="Let http tasks reach this private address; may repeat.",
)  # fmt: skip
@click.option(
    "--mask", multiple=True, metavar="ENVNAME",
    help="Hide this variable's value in logs; values that look secret are always hidden.",
)  # fmt: skip
@click.option(
    "--env", "-e", multiple=True, type=name_only, metavar="NAME",
    help="Pass this environment variable to jobs; may repeat.",
)  # fmt: skip
@click.option(
    "--bundle-cache", type=size, metavar="SIZE", default="10GiB", show_default=True,
    help="Disk space for the cache of bundles.",
)  # fmt: skip
@click.option(
    "--containers", type=click.Choice(["auto", "podman", "docker", "none"]), default="auto",
    show_default=True, help="Container engine.",
)  # fmt: skip
@click.option(
    "--container-option", multiple=True, metavar="OPTION",
    help="Add this to every container's command line: --container-option=--network=none.",
)  # fmt: skip
@log_option
@click.option(
    "--metrics", type=_address, metavar="[HOST:]PORT",
    help="Serve this worker's metrics for Prometheus here; default host: loopback.",
)  # fmt: skip
@click.option(
    "--with-parent", is_flag=True, hidden=True, help="Drain when the parent process has died."
)
@click.pass_context
def worker(ctx: click.Context, /, **given: Any) -> None:
    """Start a worker that runs jobs for a server. SIGTERM or Ctrl-C drains it.

    ROTA_TOKEN is its token; on the server's own machine the token is found. It asks the leader of
    the cell, and another server if one is away.
    """
    refuse_all_but_linux(sys.platform)
    from rota.worker.agent import ResourceOverrides, WorkerConfig

    endpoint = endpoint_of(given["server"])
    resources = ResourceOverrides(
        cpu=given["cpu"],
        memory=_bytes(given["memory"]),
        storage=_bytes(given["storage"]),
        gpu=given["gpu"],
        custom=custom_of(given["custom"]),
    )
    named = {"name": given["name"]} if given["name"] else {}
    config = WorkerConfig(
        servers=endpoint.urls,
        follow_leader=not given["no_follow"],
        silence_s=_silence_s(given["silence"]),
        token=endpoint.token,
        resources=resources,
        capabilities=given["capability"],
        queues=given["queue"] or None,
        labels=dict(given["label"]),
        only=given["only"],
        concurrency=given["concurrency"],
        spare=given["spare"],
        work_dir=given["work_dir"],
        grace_s=given["grace"].seconds,
        mask=given["mask"],
        env=given["env"],
        app=given["app"],
        http_allow=given["http_allow"],
        isolation=given["isolation"],
        bundle_cache=given["bundle_cache"].bytes,
        containers=given["containers"],
        container_options=given["container_option"],
        metrics=given["metrics"],
        **named,
    )
    ctx.exit(run_event_loop(_run(config, with_parent=given["with_parent"])))


def _silence_s(given: Duration) -> float:
    if given.ms < SILENCE_MS_MIN:
        raise click.BadParameter("must be at least 1s", param_hint="'--silence'")
    return given.seconds


def _bytes(amount: Any) -> int | None:
    return None if amount is None else int(amount.bytes)


async def _run(config: WorkerConfig, *, with_parent: bool) -> int:
    if with_parent:
        asyncio.get_running_loop().call_soon(_watch_parent)
    from rota.worker.agent import run_worker

    return await run_worker(config)


def _watch_parent() -> None:
    """Drains a local worker when its server dies: it must not outlive it for long.

    What runs may then end and be reported to a server that comes back. The kernel's own signal for
    this (PDEATHSIG) will not do: it comes once for each thread of a dying parent, and a second
    SIGTERM means hurry.
    """
    if not hasattr(os, "pidfd_open"):
        return
    loop = asyncio.get_running_loop()
    try:
        parent = os.pidfd_open(os.getppid())
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGTERM)
        return

    def drain() -> None:
        loop.remove_reader(parent)
        os.close(parent)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(parent, drain)
