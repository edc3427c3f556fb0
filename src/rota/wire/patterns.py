r"""What texts of the contract look like, and how that is said to people.

`(?!\n)` because in Python `$` alone would let a last line feed pass.
"""

from __future__ import annotations

from rota.wire.limits import CELL_NAME_CHARS_MAX

_IDENTIFIERS = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TYPE = r"[^\s*\x00-\x1f\x7f-\x9f]+"

PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*(?!\n)$"
"""Names are printed on terminals and pages."""
WORD = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]*(?!\n)$"
"""The name of a queue, tenant or calendar: it stands in paths."""
CELL_NAME = rf"^[a-z0-9][a-z0-9-]{{0,{CELL_NAME_CHARS_MAX - 1}}}(?!\n)$"
"""As in a host name: it stands in headers, cookies and metrics."""
UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?!\n)$"
BUNDLE_ID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\n)$"
WORKER_ID = r"^[A-Za-z0-9_.:-]+(?!\n)$"
SHA256 = r"^[0-9a-f]{64}(?!\n)$"
EVENT_TYPE = rf"^{_TYPE}(?!\n)$"
EVENT_TYPES = rf"^(\*|{_TYPE}|{_TYPE}\.\*)(?!\n)$"
NO_NUL = r"^[^\x00]*$"
VARIABLE = r"^[^\x00=]+$"
ENTRY = rf"^{_IDENTIFIERS}:{_IDENTIFIERS}(?!\n)$"
HEADER_NAME = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+(?!\n)$"
HEADER_VALUE = r"^[^\x00-\x08\x0a-\x1f\x7f]*(?!\n)$"
INPUT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(?!\n)$"
HTTP_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f]+(?!\n)$"
ANY_URL = "^[a-z0-9]+://"
IMAGE = r"^[A-Za-z0-9][A-Za-z0-9_.:/@-]*(?!\n)$"
CONTAINER_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$"
ONE_LINE = r"^[^\x00\r\n]*(?!\n)$"

PATTERN_TEXTS = {
    PLAIN: "must have no control characters",
    WORD: "takes letters, digits and _ . : @ - only, and begins with a letter, digit or _",
    CELL_NAME: "takes small letters, digits and - only, and begins with a letter or digit",
    UUID: "must be a UUID",
    BUNDLE_ID: "must be a bundle's id, a UUID",
    WORKER_ID: "takes letters, digits and _ . : - only",
    SHA256: "must be 64 hexadecimal digits, small letters",
    EVENT_TYPE: "must have no spaces, no control characters and no *",
    EVENT_TYPES: "must be a type of event, `prefix.*` for all that begin so, or `*`",
    NO_NUL: "must have no NUL character",
    VARIABLE: "must have no NUL character and no =",
    ENTRY: "must name a function: package.module:function",
    HEADER_NAME: "must be the name of a header: letters, digits and hyphens",
    HEADER_VALUE: "must have no control characters",
    INPUT_NAME: "takes letters, digits and _ . - only, and begins with a letter, digit or _",
    HTTP_URL: "must begin with http:// or https:// and have no spaces",
    ANY_URL: "must begin with a scheme, such as https://",
    IMAGE: "must be the name of an image, such as alpine:3.20",
    CONTAINER_VARIABLE: "takes letters, digits and _ only, and begins with no digit",
    ONE_LINE: "must be one line without NUL characters",
}
"""What a text that does not match is told it must be."""
