"""Bodies for chains of calls: mostly examples of the OpenAPI document, so that calls succeed.

Random bodies are nearly all refused, for reasons that a schema cannot express, and then the next
call has no object to refer to. Loaded by schemathesis itself, through SCHEMATHESIS_HOOKS.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import schemathesis
from schemathesis import HookContext

from rota.api.endpoints import OPERATIONS
from rota.api.openapi.document import example
from tests.fuzz import checks as checks  # its checks are held against every answer here, too

EXAMPLES = {
    f"{one.method} {one.path}": example(one.examples["body"])
    for one in OPERATIONS
    if "body" in one.examples
}
MADE_UP_IN = 4
"""One body of so many is what chance made of it."""
_numbers = itertools.count(1)


@schemathesis.hook
def map_body(context: HookContext, body: Any) -> Any:
    """The example of the call, with a new name if it has a name."""
    shown = EXAMPLES.get(context.operation.label)
    made_up = zlib.crc32(repr(body).encode("utf-8", "replace")) % MADE_UP_IN == 0
    if not isinstance(shown, dict) or made_up:
        return body
    if isinstance(shown.get("name"), str) and context.operation.method.upper() == "POST":
        return {**shown, "name": f"{shown['name']}-{next(_numbers)}"}
    return shown
