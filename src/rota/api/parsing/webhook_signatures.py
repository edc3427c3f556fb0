"""Checks webhook signatures: HMAC with a shared secret, in constant time, not too old."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from rota.core.model import Instant
from rota.store.documents import Hook
from rota.wire.problems import ProblemError

GITHUB_HEADER = "x-hub-signature-256"
STAMPED_HEADERS = {"stripe": "stripe-signature", "rota": "rota-signature"}
_STAMP_DIGITS_MAX = 12
_SIGNATURES_MAX = 8
"""Signatures in a header: one for each secret of the sender."""


def check_signature(hook: Hook, headers: Mapping[str, str], body: bytes, now: Instant) -> None:
    """Accepts a body signed with one of the hook's secrets; refuses everything else with 401."""
    if hook.scheme == "github":
        given = headers.get(GITHUB_HEADER, "")
        scheme, _, signature = given.partition("=")
        _require(hook, body, [signature] if scheme == "sha256" else [], GITHUB_HEADER)
        return
    name = STAMPED_HEADERS[hook.scheme]
    stamp, signatures = _stamped(headers.get(name, ""))
    _require(hook, stamp.encode() + b"." + body, signatures, name)
    # Checked only now: an unsigned timestamp proves nothing.
    late_ms = abs(now - int(stamp) * 1000)
    if late_ms > hook.tolerance_ms:
        raise _refused(
            f"the signature was made {late_ms // 1000} s from now by this server's clock, and may "
            f"be {hook.tolerance_ms // 1000} s: a replay, or one of the clocks is wrong"
        )


def _stamped(header: str) -> tuple[str, list[str]]:
    """Parses `t=…,v1=…,v1=…`: the time of signing, and the signatures of a known kind."""
    stamp, signatures = "", []
    for part in header.split(",")[: 2 * _SIGNATURES_MAX]:
        name, _, value = part.strip().partition("=")
        if name == "t":
            stamp = value
        elif name == "v1":
            signatures.append(value)
    valid = stamp.isdecimal() and stamp.isascii() and len(stamp) <= _STAMP_DIGITS_MAX
    return (stamp, signatures[:_SIGNATURES_MAX]) if valid else ("0", [])


def _require(hook: Hook, signed: bytes, signatures: Sequence[str], header: str) -> None:
    found = False
    for secret in hook.secrets:
        wanted = sign(secret, signed).encode()
        for signature in signatures:
            # All are compared even after a match, so that timing reveals nothing about the secrets.
            found |= hmac.compare_digest(wanted, signature.encode("utf-8", "replace"))
    if not found:
        raise _refused(f"`{header}` does not hold a signature made with this endpoint's secret")


def sign(secret: str, signed: bytes) -> str:
    """Returns the HMAC-SHA256 in hexadecimal."""
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _refused(detail: str) -> ProblemError:
    return ProblemError(401, "bad_signature", detail)
