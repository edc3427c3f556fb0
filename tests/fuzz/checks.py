"""Checks of every answer: those of schemathesis, except where a schema cannot know the reason.

Loaded by schemathesis itself, through SCHEMATHESIS_HOOKS.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, Response
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

BEYOND_THE_SCHEMA = re.compile(
    "|".join(
        (
            # JSON Schema counts 2.0 among the integers; the server does not.
            r"Expected `int( \| object)?( \| null)?`, got `float`",
            # It cannot add up "9999w 1h", nor see that 0.1 microseconds round to nothing.
            "a duration must be between 0 and ten years",
            "a size must be between 0 and 1 EiB",
            "is at most [0-9]+ bytes",
            "must be more than 0",
            "must be at least one minute",
            "a deadline must be later than now",
            # It could say which fields go together, by a schema for each case, which nobody reads.
            "goes with the action",
            "goes with the roles",
            "does not go with",
            "leave out `workers` and `cpu`",
            "set `(workers|cpus)`",
            "cannot be combined with",
            "without a task the job runs a function",
            # It cannot take a URL apart.
            "the URL is not valid",
            "the URL names no host",
            "leave the user and password out of the URL",
            # It cannot forbid a name in whatever case.
            "is set by the worker",
            # It cannot compare times.
            "between the years 1970 and 2200",
            "not before 1970",
            "must be earlier than `before`",
            "must be earlier than `to`",
            "a timeline shows 31 days at most",
            # The tool takes "0" for an example of two numbers with a dot between them.
            "the `id` of an event of this stream",
            # Chains of calls hand over the names of other things, whatever the schema says.
            "an artifact's name",
            # Nor hash a body, or know whether more of it comes.
            "the content has the SHA-256",
            "is needed for an upload in pieces",
            "a bundle has at least one byte",
            "more than the [0-9]+ bytes allowed",
            # Nor read a cron expression or a calendar.
            "give exactly one of cron",
            '"field":"(schedules.[0-9]+..)?cron"',
            "an interval is at least",
            "only an interval can count",
            "shift needs a cron expression",
            "jitter (is at most|must be less)",
            "that is in the past",
            "ends_at must not be before",
            "no instant is due between",
            "`to` is before `from`",
            "use a shorter range",
            "the job of a (schedule|trigger) cannot depend on another job",
            "the schedule says when",
            "how long after each job is made",
            "uses a concurrency key of its own",
            "there is no placeholder",
            "two schedules are named",
            # Nor a trace, or what its first jobs are like.
            '"type":"urn:rota:problem:not_simulated"',
            "the body is empty: send a trace",
            # Nor a filter, a path or base64.
            '"field":"(triggers.[0-9]+..)?(filter|debounce.key)"',
            "not base64",
            "an RFC 3339 time such as",
            "attributes are named in lower-case",
            "an attribute is a text",
            "the server's own",
            "not both",
            "is not a duration",
            "the event says when",
            "two triggers are named",
            # Nor know every notification service, or which settings fit which condition.
            "the address is of no known service",
            "the address (has no host|is not a valid URL)",
            "covers all queues together",
            "is needed for .*: one of",
            '"field":"window"',
            # It does not know what exists or how long a file is, nor what a patch is put on.
            "is for an array",
            "there is no channel",
            "no worker is there to copy",
            "no job ran then that these workers could run",
            "no job that was submitted in this time has run",
            "there is no (time zone|calendar)",
            "there is no job",
            "the range is beyond its end",
            "has no such bundle",
            "the bundle is an archive",
            "no job of this batch",
            "not a cursor",
        )
    )
)
"""Refusals of what the document allows, with the reason why it cannot say so."""


EMPTY_PARAMETER = re.compile(r"[?&][^=&]*=(&|$)")


@schemathesis.check
def valid_data_is_accepted(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Input that the document allows is not refused, except for reasons that a schema cannot
    express."""
    if response.status_code in (413, 416, 422) and BEYOND_THE_SCHEMA.search(response.text):
        return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def invalid_data_is_refused(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Input that the document does not allow is refused; an empty parameter counts as not given.

    A merge patch removes nulls at any depth, but the document says so of top-level fields only.
    """
    if case.method.upper() == "PATCH" and takes_out_inside(case.body):
        return None
    empty_header = "" in (case.headers or {}).values()
    if empty_header or EMPTY_PARAMETER.search(str(response.request.url)):
        return None
    return negative_data_rejection(ctx, response, case)


def takes_out_inside(body: object) -> bool:
    """Whether an object inside the patch has a null."""
    if not isinstance(body, dict):
        return False
    inside = [one for one in body.values() if isinstance(one, dict)]
    return any(None in one.values() or takes_out_inside(one) for one in inside)
