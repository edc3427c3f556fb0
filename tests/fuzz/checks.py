"""What schemathesis holds against every answer beside its own checks.

Loaded by schemathesis itself, through SCHEMATHESIS_HOOKS.
"""

from __future__ import annotations

import re

import schemathesis
from schemathesis import Case, CheckContext, Response
from schemathesis.specs.openapi.checks import positive_data_acceptance

BEYOND_THE_SCHEMA = (
    # A schema cannot add up "9999w 1h", nor see that 0.1 microseconds round to nothing.
    "a duration is between 0 and ten years",
    "must be more than 0",
    # It could, by a schema for each action, but nobody would read that.
    "goes with the action",
)
"""Refusals of what the document allows, each with the reason why it cannot say so."""


@schemathesis.check
def valid_data_is_accepted(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """The built-in check of that, which knows only the schema."""
    if response.status_code == 422 and any(
        re.search(text, response.text) for text in BEYOND_THE_SCHEMA
    ):
        return None
    return positive_data_acceptance(ctx, response, case)
