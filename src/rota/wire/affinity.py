"""Where a job is to run, and what workers say of where they are."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from rota.wire.limits import (
    AFFINITY_LABELS_MAX,
    AFFINITY_VALUES_MAX,
    CAPABILITY_CHARS_MAX,
    NAME_CHARS_MAX,
    TAINTS_MAX,
)
from rota.wire.patterns import PLAIN
from rota.wire.units import Duration

Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)]
LabelValue: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=PLAIN)]
_OneValue: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_CHARS_MAX, extra_json_schema={"pattern": PLAIN}),
]
"""As LabelValue, but its pattern is looked at below: msgspec frees a text with a pattern badly
where a list may stand in its place."""
LabelValues: TypeAlias = (
    _OneValue | Annotated[list[LabelValue], Meta(min_length=1, max_length=AFFINITY_VALUES_MAX)]
)
WorkerLabels: TypeAlias = Annotated[
    dict[Label, LabelValue],
    Meta(max_length=AFFINITY_LABELS_MAX, examples=[{"zone": "a", "host": "rack-7"}]),
]
Taint: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=CAPABILITY_CHARS_MAX, pattern=PLAIN)
]
"""A resource, a capability, or any word that jobs can tolerate."""
Taints: TypeAlias = Annotated[list[Taint], Meta(max_length=TAINTS_MAX)]


class AffinitySpec(msgspec.Struct, forbid_unknown_fields=True):
    """Which workers a job must, or would rather, run on: by their labels.

    `host` is a label that every worker has. A preferred place is waited for while another is free,
    `wait` at the longest; then the job runs where there is room.
    """

    require: Annotated[dict[Label, LabelValues], Meta(max_length=AFFINITY_LABELS_MAX)] = {}
    prefer: Annotated[dict[Label, LabelValues], Meta(max_length=AFFINITY_LABELS_MAX)] = {}
    spread: Label | None = None
    near: Literal["previous"] | None = None
    wait: Duration = msgspec.field(default_factory=lambda: Duration(3_000))
    tolerate: Taints = []

    def __post_init__(self) -> None:
        for where, labels in (("require", self.require), ("prefer", self.prefer)):
            for label, value in labels.items():
                if isinstance(value, str) and not re.search(PLAIN, value):
                    raise ValueError(f"{where}.{label} must be plain text, without control codes")


class AffinityView(msgspec.Struct):
    """The affinity in force; `wait` in seconds."""

    require: dict[str, list[str]]
    prefer: dict[str, list[str]]
    spread: str | None
    near: Literal["previous"] | None
    wait: float | int
    tolerate: list[str]
