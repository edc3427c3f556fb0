"""The command tree: knows every word, and imports the module behind one only when it is used."""

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
    from rota.cli.connect import Limits

EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 1
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Word(NamedTuple):
    """One command: where it is, and what it does in a line."""

    module: str
    attribute: str
    does: str


SECTIONS: dict[str, dict[str, Word]] = {
    "Start": {
        "up": Word("start.up", "up", "Start everything on this machine: server, page and workers."),
        "server": Word("start.up", "server", "Start a server only."),
        "worker": Word("start.work", "worker", "Start a worker that runs jobs for a server."),
        "gateway": Word("start.gateway", "gateway", "Spread tenants over several cells."),
    },
    "Jobs": {
        "submit": Word("jobs.submit", "submit", "Submit a job, or many."),
        "jobs": Word("jobs.jobs", "jobs", "List jobs, newest first."),
        "show": Word("jobs.jobs", "show", "Show all there is to know about a job."),
        "why": Word("jobs.why", "why", "Say why a job is not running, and when it will."),
        "logs": Word("jobs.jobs", "logs", "Print what a job printed; -f goes on."),
        "graph": Word("jobs.jobs", "graph", "Draw the dependencies around a job."),
        "wait": Word("jobs.waits", "wait", "Wait until jobs have ended."),
        "cancel": Word("jobs.acts", "cancel", "Stop jobs, or keep them from starting."),
        "retry": Word("jobs.acts", "retry", "Start over what did not succeed."),
        "update": Word("jobs.acts", "update", "Change a job that has not started."),
        "delete": Word("jobs.acts", "delete", "Remove finished jobs."),
        "execute": Word("jobs.acts", "execute", "Run a job on a worker now, past time and order."),
        "bulk": Word("jobs.bulk", "bulk", "Act on all jobs that match."),
        "dead-letters": Word("jobs.jobs", "dead_letters", "List jobs that used up their attempts."),
        "executions": Word("jobs.executions", "executions", "List tries of jobs."),
        "artifacts": Word("jobs.artifacts", "artifacts", "List and fetch the files of a job."),
        "bundles": Word("jobs.bundles", "bundles", "Upload, list and remove code for jobs."),
    },
    "Time": {
        "schedules": Word(
            "occasions.schedules", "schedules", "List, make, run and backfill schedules."
        ),
        "cron": Word("occasions.cron", "cron", "Print what a cron expression means."),
        "calendars": Word(
            "occasions.calendars", "calendars", "List and set calendars of holidays."
        ),
    },
    "Events": {
        "triggers": Word("occasions.triggers", "triggers", "List, make, try and pause triggers."),
        "events": Word(
            "occasions.events", "events", "List and send events; listen to other systems."
        ),
        "hooks": Word("occasions.hooks", "hooks", "List and set up webhook endpoints."),
    },
    "Workers and queues": {
        "workers": Word("cell.workers", "workers", "List, drain, resume and remove workers."),
        "queues": Word("cell.queues", "queues", "List, set, pause and purge queues."),
        "tenants": Word("cell.tenants", "tenants", "List tenants; set their weights and quotas."),
        "policy": Word(
            "planning.policy", "policy", "Show or set the rules by which jobs are ordered."
        ),
    },
    "Planning": {
        "simulate": Word(
            "planning.simulate", "simulate", "Replay a workload on a fleet that need not be."
        ),
        "autoscale": Word("planning.autoscale", "autoscale", "Say how many workers would do."),
        "report": Word(
            "planning.report", "report", "Report what jobs asked for and what they took."
        ),
        "history": Word("planning.history", "history", "Write down what ran, to replay it."),
    },
    "Access": {
        "tokens": Word("cell.tokens", "tokens", "Make, list and revoke tokens."),
        "audit": Word("cell.tokens", "audit", "Show who changed what."),
    },
    "Service": {
        "top": Word("cell.top", "top", "Watch everything live."),
        "stats": Word("cell.service", "stats", "Print the overall figures."),
        "stream": Word("cell.service", "stream", "Print every state change as it happens."),
        "alerts": Word("cell.alerts", "alerts", "List, set and silence alerts; say who is told."),
        "cluster": Word("cell.cluster", "cluster", "Say who leads, and who is there."),
        "doctor": Word("trials.doctor", "doctor", "Check this installation."),
        "bench": Word("trials.bench", "bench", "Measure this installation."),
        "verify": Word(
            "trials.verify",
            "verify",
            "Verify Rota's promises on a simulated or real cluster.",
        ),
        "migrate": Word("start.migrate", "migrate", "Bring a store's schema up to date."),
        "completion": Word("cell.service", "completion", "Print the completion script of a shell."),
    },
}

_WORDS = {name: word for section in SECTIONS.values() for name, word in section.items()}


class Tree(click.Group):
    """A group that knows its commands by name and loads each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All words."""
        return list(_WORDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads one."""
        word = _WORDS.get(cmd_name)
        if word is None:
            return None
        module = importlib.import_module(f"rota.cli.{word.module}")
        command = getattr(module, word.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess at what was meant."""
        if args and args[0] not in _WORDS and not args[0].startswith("-"):
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In sections, from the table above: nothing is loaded for it."""
        for title, words in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, word.does) for name, word in words.items()])


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, _WORDS, 1, 0.5)
    guess = f" Did you mean {near[0]!r}?" if near else " See: rota --help"
    return f"there is no command {name!r}.{guess}"


@click.command(cls=Tree, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rota", message="%(prog)s %(version)s")
def tree() -> None:
    """Rota schedules jobs: now, later, after each other, on whichever machine fits.

    ROTA_URL and ROTA_TOKEN say which server and who asks; without them the server on this machine
    is found by itself. Ids may be shortened to six or more characters of their end or beginning.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """What the `rota` command runs."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None, limits: Limits | None = None) -> int:
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
        return EXIT_NOBODY_READS
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
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
    """Without this the interpreter complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2: its message is the whole help
        click.echo(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
    click.echo(f"rota: {error.format_message()}", err=True)
    return error.exit_code
