"""What a job runs: one record a kind of task."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from rota.wire.limits import HEADER_CHARS_MAX, HEADERS_MAX, NAME_CHARS_MAX, URL_CHARS_MAX

FUNCTION_CAPABILITY = "fn:"
"""A worker that has the function `invoice` has the capability `fn:invoice`."""
_IDENTIFIERS = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_OUR_HEADERS = ("connection", "content-length", "host", "transfer-encoding")

EnvText: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
Entry: TypeAlias = Annotated[
    str,
    Meta(
        max_length=NAME_CHARS_MAX,
        pattern=rf"^{_IDENTIFIERS}:{_IDENTIFIERS}(?!\n)$",
        description="package.module:function",
        examples=["shop.billing:invoice"],
    ),
]
HeaderName: TypeAlias = Annotated[
    str, Meta(max_length=NAME_CHARS_MAX, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+(?!\n)$")
]
HeaderValue: TypeAlias = Annotated[
    str, Meta(max_length=HEADER_CHARS_MAX, pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*(?!\n)$")
]
Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

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
    env: dict[Annotated[str, Meta(min_length=1, pattern=r"^[^\x00=]+$")], EnvText] = {}
    cwd: EnvText | None = None

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
            pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f]+(?!\n)$",
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


class Noop(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="noop"):
    """Nothing: the worker acknowledges it."""


Task: TypeAlias = Command | PythonCall | HttpCall | Noop
