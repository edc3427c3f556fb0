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
    """Module of a command, where it is named as here, and its summary."""

    module: str
    summary: str


SECTIONS: dict[str, dict[str, LazyCommand]] = {
    "Start": {
        "up": LazyCommand(
            "start.up", "Start everything on this machine: server, page and workers."
        ),
        "server": LazyCommand("start.up", "Start a server only."),
        "worker": LazyCommand("start.worker", "Start a worker that runs jobs for a server."),
        "gateway": LazyCommand("start.gateway", "Spread tenants over several cells."),
    },
    "Jobs": {
        "submit": LazyCommand("submit", "Submit a job, or many."),
        "jobs": LazyCommand("jobs", "List jobs, newest first."),
        "show": LazyCommand("jobs", "Show all there is to know about a job."),
        "why": LazyCommand("why", "Say why a job is not running, and when it will."),
        "logs": LazyCommand("logs", "Print what a job printed; -f goes on."),
        "graph": LazyCommand("graph", "Draw the dependencies around a job."),
        "wait": LazyCommand("submit", "Wait until jobs have ended."),
        "cancel": LazyCommand("jobs", "Stop jobs, or keep them from starting."),
        "retry": LazyCommand("jobs", "Start over what did not succeed."),
        "update": LazyCommand("jobs", "Change a job that has not started."),
        "delete": LazyCommand("jobs", "Remove finished jobs."),
        "execute": LazyCommand("jobs", "Run a job on a worker now, past time and order."),
        "bulk": LazyCommand("jobs", "Act on all jobs that match."),
        "dead-letters": LazyCommand("jobs", "List jobs that used up their attempts."),
        "executions": LazyCommand("jobs", "List tries of jobs."),
        "artifacts": LazyCommand("jobs", "List and fetch the files of a job."),
        "bundles": LazyCommand("bundles", "Upload, list and remove code for jobs."),
    },
    "Time": {
        "schedules": LazyCommand("schedules", "List, make, run and backfill schedules."),
        "cron": LazyCommand("schedules", "Print what a cron expression means."),
        "calendars": LazyCommand("schedules", "List and set calendars of holidays."),
    },
    "Events": {
        "triggers": LazyCommand("events", "List, make, try and pause triggers."),
        "events": LazyCommand("events", "List and send events; listen to other systems."),
        "hooks": LazyCommand("events", "List and set up webhook endpoints."),
    },
    "Workers and queues": {
        "workers": LazyCommand("workers", "List, drain, resume and remove workers."),
        "queues": LazyCommand("queues", "List, set, pause and purge queues."),
        "tenants": LazyCommand("queues", "List tenants; set their weights and quotas."),
        "policy": LazyCommand("policy", "Show or set the rules by which jobs are ordered."),
    },
    "Planning": {
        "simulate": LazyCommand("simulate", "Replay a workload on a fleet that need not be."),
        "autoscale": LazyCommand("report", "Say how many workers would do."),
        "report": LazyCommand("report", "Report what jobs asked for and what they took."),
        "history": LazyCommand("history", "Write down what ran, to replay it."),
    },
    "Access": {
        "tokens": LazyCommand("tokens", "Make, list and revoke tokens."),
        "audit": LazyCommand("tokens", "Show who changed what."),
    },
    "Service": {
        "top": LazyCommand("service", "Watch everything live."),
        "stats": LazyCommand("service", "Print the overall figures."),
        "stream": LazyCommand("service", "Print every state change as it happens."),
        "alerts": LazyCommand("alerts", "List, set and silence alerts; say who is told."),
        "cluster": LazyCommand("service", "Say who leads, and who is there."),
        "doctor": LazyCommand("doctor", "Check this installation."),
        "bench": LazyCommand("bench", "Measure this installation."),
        "verify": LazyCommand("verify", "Verify Rota's promises on a simulated or real cluster."),
        "migrate": LazyCommand("start.migrate", "Bring a store's schema up to date."),
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
    """Rota schedules jobs: now, later, after each other, on whichever machine fits.

    ROTA_URL and ROTA_TOKEN say which server and who asks; without them the server on this machine
    is found by itself. Ids may be shortened to six or more characters of their end or beginning.
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
        said = f"{error.object[:100]!r} cannot be written as {error.encoding}: {error.reason}"
        return _complain(click.ClickException(said))
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
