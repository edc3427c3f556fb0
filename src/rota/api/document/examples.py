"""Examples of bodies and answers for the OpenAPI document: one JSON file each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_EXAMPLES = Path(__file__).parent / "examples"


@cache
def example(name: str) -> Any:
    """The example in the file of this name. Read when somebody asks for the document."""
    return msgspec.json.decode((_EXAMPLES / f"{name}.json").read_bytes())
