"""Runs the `rota` command: names every command, and imports the module of one when it is used."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from rota import __version__

if TYPE_CHECKING:
    from rota.cli.connect import CommandLimits

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 1
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LazyCommand(NamedTuple):
    """Module of a command (loaded when it is called) and its summary."""

    module: str
    summary: str


SECTIONS: dict[str, dict[str, LazyCommand]] = {
    "Start": {
        "up": LazyCommand(
            "start.up", "Start everything on this machine: server, dashboard and workers."
        ),
        "server": LazyCommand("start.up", "Start a server without workers."),
        "worker": LazyCommand("start.worker", "Start a worker that runs jobs for a server."),
        "gateway": LazyCommand(
            "start.gateway", "Start a gateway that spreads tenants over several cells."
        ),
    },
    "Jobs": {
        "submit": LazyCommand("submit", "Submit one job or many."),
        "jobs": LazyCommand("jobs", "List jobs, newest first."),
        "show": LazyCommand("jobs", "Show all details of a job."),
        "why": LazyCommand("why", "Explain why a job is not running, and when it will start."),
        "logs": LazyCommand("logs", "Print the log of a job; -f follows it."),
        "graph": LazyCommand("graph", "Draw the dependency graph of a job."),
        "wait": LazyCommand("submit", "Wait until jobs have ended."),
        "cancel": LazyCommand("jobs", "Cancel waiting or running jobs."),
        "retry": LazyCommand("jobs", "Run jobs again that did not succeed."),
        "update": LazyCommand("jobs", "Change a job that has not started."),
        "delete": LazyCommand("jobs", "Remove finished jobs."),
        "execute": LazyCommand("jobs", "Run a job on a given worker now."),
        "bulk": LazyCommand("jobs", "Cancel, retry, delete or reprioritise all matching jobs."),
        "dead-letters": LazyCommand("jobs", "List jobs that used up their attempts."),
        "executions": LazyCommand("jobs", "List executions (attempts) of jobs."),
        "artifacts": LazyCommand("jobs", "List and download the output files of a job."),
        "bundles": LazyCommand("bundles", "Upload, list and remove bundles of code and data."),
    },
    "Time": {
        "schedules": LazyCommand("schedules", "List, create, trigger and backfill schedules."),
        "cron": LazyCommand("schedules", "Print the next times of a cron expression."),
        "calendars": LazyCommand("schedules", "List and set calendars of holidays."),
    },
    "Events": {
        "triggers": LazyCommand("events", "List, create, test and pause triggers."),
        "events": LazyCommand("events", "List and send events; listen to other systems."),
        "hooks": LazyCommand("events", "List and set up webhook endpoints."),
    },
    "Workers and queues": {
        "workers": LazyCommand("workers", "List, drain, resume and remove workers."),
        "queues": LazyCommand("queues", "List, set, pause and purge queues."),
        "tenants": LazyCommand("queues", "List tenants; set their weights and quotas."),
        "policy": LazyCommand("policy", "Show or set the scheduling policy."),
    },
    "Planning": {
        "simulate": LazyCommand(
            "simulate", "Simulate a workload on any machines under any policy."
        ),
        "autoscale": LazyCommand("report", "Show how many workers the backlog needs."),
        "report": LazyCommand("report", "Compare the requested and the used resources of jobs."),
        "history": LazyCommand("history", "Export past jobs, or replay them under other policies."),
    },
    "Access": {
        "tokens": LazyCommand("tokens", "Create, list and revoke tokens."),
        "audit": LazyCommand("tokens", "Show the audit log: who changed what."),
    },
    "Service": {
        "top": LazyCommand("service", "Show jobs, queues and workers live."),
        "stats": LazyCommand("service", "Print statistics of the service."),
        "stream": LazyCommand("service", "Print every state change as it happens."),
        "alerts": LazyCommand("alerts", "List, set and silence alerts; set up channels."),
        "cluster": LazyCommand("service", "Show the servers of the cell, and which one leads."),
        "doctor": LazyCommand("doctor", "Check this installation."),
        "bench": LazyCommand("bench", "Measure the performance of this installation."),
        "verify": LazyCommand("verify", "Verify Rota's guarantees on a simulated or real cluster."),
        "migrate": LazyCommand("start.migrate", "Update the schema of a store."),
        "completion": LazyCommand("service", "Print the completion script of a shell."),
    },
}

_COMMANDS = {name: one for section in SECTIONS.values() for name, one in section.items()}


class CommandTree(click.Group):
    """Group that knows its commands by name and loads each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns them in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports its module."""
        found = _COMMANDS.get(cmd_name)
        if found is None:
            return None
        module = importlib.import_module(f"rota.cli.{found.module}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves as click does, and suggests a command for one that is unknown."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes sections from the table above, without importing a command."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, one.summary) for name, one in commands.items()])


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, _COMMANDS, 1, 0.5)
    guess = f" Did you mean {near[0]!r}?" if near else " See: rota --help"
    return f"there is no command {name!r}.{guess}"


@click.command(cls=CommandTree, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rota", message="%(prog)s %(version)s")
def tree() -> None:
    """Rota schedules jobs: now, later, after each other, on any machine that fits.

    ROTA_URL and ROTA_TOKEN name the server and the token; without them the server on this machine
    is found automatically. Ids can be shortened to six or more characters of their end or start.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the `rota` command."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None, limits: CommandLimits | None = None) -> int:
    """Runs one command and answers its exit status; every error is one line on stderr."""
    try:
        status = tree.main(
            args=None if args is None else list(args),
            prog_name="rota",
            standalone_mode=False,
            obj=limits,
        )
        sys.stdout.flush()
    except click.Abort:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.filename is not None or error.errno not in _DISK_FULL:
            raise
        _drop_output()
        return _complain(click.ClickException(f"cannot write the output: {error.strerror}"))
    except click.ClickException as error:
        return _complain(error)
    except UnicodeEncodeError as error:
        # A program's argument may be any bytes; what goes into JSON, or to a terminal, may not.
        text = f"{error.object[:100]!r} cannot be written as {error.encoding}: {error.reason}"
        return _complain(click.ClickException(text))
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    """Redirects stdout to the null device: else the interpreter complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2: its message is the whole help
        click.echo(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
    click.echo(f"rota: {error.format_message()}", err=True)
    return error.exit_code
