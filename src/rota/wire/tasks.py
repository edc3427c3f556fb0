"""What a job runs: one record a kind of task."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.limits import (
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    INPUTS_MAX,
    NAME_CHARS_MAX,
    URL_CHARS_MAX,
)
from rota.wire.patterns import (
    BUNDLE_ID,
    CONTAINER_VARIABLE,
    ENTRY,
    HEADER_NAME,
    HEADER_VALUE,
    HTTP_URL,
    IMAGE,
    INPUT_NAME,
    NO_NUL,
    ONE_LINE,
    VARIABLE,
)

FUNCTION_CAPABILITY = "fn:"
"""A worker that has the function `invoice` has the capability `fn:invoice`."""
BUNDLE_CAPABILITY = "bundle"
"""A worker that can fetch bundles."""
CONTAINER_CAPABILITY = "container"
"""A worker that has podman or docker."""
_OUR_HEADERS = ("connection", "content-length", "host", "transfer-encoding")

EnvText: TypeAlias = Annotated[str, Meta(pattern=NO_NUL)]
Entry: TypeAlias = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX,
        pattern=ENTRY,
        description="package.module:function",
        examples=["shop.billing:invoice"],
    ),
]
HeaderName: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=HEADER_NAME)]
HeaderValue: TypeAlias = Annotated[str, Meta(max_length=HEADER_CHARS_MAX, pattern=HEADER_VALUE)]
Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

BundleId: TypeAlias = Annotated[
    str,
    Meta(
        pattern=BUNDLE_ID,
        description="a bundle's id, from POST /bundles",
        examples=["019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"],
    ),
]
InputName: TypeAlias = Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=INPUT_NAME)]
Inputs: TypeAlias = Annotated[
    dict[InputName, BundleId],
    Meta(
        max_length=INPUTS_MAX,
        description="Bundles that the job finds in the folder ROTA_INPUTS, each under its name.",
    ),
]
Env: TypeAlias = dict[Annotated[str, Meta(min_length=1, pattern=VARIABLE)], EnvText]
Argument: TypeAlias = Annotated[list[EnvText], Meta(max_length=10_000)]

PROGRAM = {"type": "string", "pattern": r"^[^\x00]+$"}


class Command(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="command"):
    """Any program, in any language."""

    argv: Annotated[
        list[EnvText],
        Meta(
            min_length=1,
            max_length=10_000,
            examples=[["python3", "bill.py", "42"]],
            extra_json_schema={"prefixItems": [PROGRAM]},
        ),
    ]
    env: Env = {}
    cwd: EnvText | None = None
    inputs: Inputs | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not self.argv[0]:
            raise ValueError("argv[0] must name a program")


class PythonCall(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="python"):
    """A Python function that the worker can import; what it returns is the job's result."""

    entry: Entry
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class HttpCall(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="http"):
    """One HTTP request; text goes out as it is, any other body as JSON. 2xx succeeds."""

    url: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=URL_CHARS_MAX,
            pattern=HTTP_URL,
            examples=["https://shop.example/hooks/paid"],
        ),
    ]
    method: Method = "GET"
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=HEADERS_MAX)] = {}
    body: Any = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"the URL makes no sense: {error}") from None
        if not host:
            raise ValueError("the URL names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "leave the user and password out of the URL, which everybody sees: "
                "send an Authorization header"
            )
        for name in self.headers:
            if name.lower() in _OUR_HEADERS:
                raise ValueError(f"the header {name} is set by the worker")


class BundleRun(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="bundle"):
    """A program that was uploaded: a bundle, and what to run in it.

    The job's folder is the unpacked archive, or has the one file. `argv` left out runs that file.
    """

    bundle_id: BundleId
    argv: Annotated[
        Argument,
        Meta(examples=[["./run.sh", "42"]], extra_json_schema={"prefixItems": [PROGRAM]}),
    ] = []
    env: Env = {}
    inputs: Inputs | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.argv and not self.argv[0]:
            raise ValueError("argv[0] must name a program")


class Container(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="container"):
    """A program in a container image, run by the worker's podman or docker.

    `argv` left out runs what the image says. The job's folder is at /rota in the container.
    """

    image: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=NAME_CHARS_MAX,
            pattern=IMAGE,
            examples=["docker.io/library/alpine:3.20"],
        ),
    ]
    argv: Argument = []
    env: dict[
        Annotated[str, Meta(max_length=NAME_CHARS_MAX, pattern=CONTAINER_VARIABLE)],
        Annotated[str, Meta(pattern=ONE_LINE)],
    ] = {}
    inputs: Inputs | UnsetType = UNSET


class Noop(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="noop"):
    """Nothing: the worker acknowledges it."""


Task: TypeAlias = Command | PythonCall | HttpCall | BundleRun | Container | Noop
_WITHOUT_BUNDLES = (PythonCall, HttpCall, Noop)
"""Made once: `|` would make a new type for every job."""


def bundles_of(task: Task | None) -> dict[str, str]:
    """The bundles that a task needs, by the field that names each; ids in small letters."""
    if task is None or isinstance(task, _WITHOUT_BUNDLES):
        return {}
    named = {"task.bundle_id": task.bundle_id.lower()} if isinstance(task, BundleRun) else {}
    if not isinstance(task.inputs, UnsetType):
        named |= {f"task.inputs.{name}": one.lower() for name, one in task.inputs.items()}
    return named


def implied_capabilities(task: Task | None) -> tuple[str, ...]:
    """What a worker must be able to do for this kind of task, said or not."""
    found = [BUNDLE_CAPABILITY] if bundles_of(task) else []
    if isinstance(task, Container):
        found.append(CONTAINER_CAPABILITY)
    return tuple(found)
