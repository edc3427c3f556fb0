"""Cursors of lists: opaque to clients, the last item's place to servers and gateways."""

from __future__ import annotations

import base64
import binascii


def make_cursor(last: str) -> str:
    """What leads on from the last item of a page."""
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def parse_cursor(cursor: str, chars_max: int) -> str:
    """The last item seen; ValueError if it is not a cursor of ours."""
    if len(cursor) > chars_max:
        raise ValueError("longer than any cursor")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from error
