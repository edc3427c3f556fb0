"""Masks secrets by value in everything that leaves the worker: streamed output and messages.

Names of variables decide which values are secret. A value is found as the bytes it is: one that a
job prints encoded or in pieces is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

SECRET_CHARS_MIN = 6
"""A shorter value would mask half of every log, and keeps no secret anyway."""
MASK = b"***"
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|KEY|CREDENTIAL|PRIVATE|COOKIE|AUTHORI[SZ]ATION|_(PASS|PWD)$",
    re.IGNORECASE,
)
PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


class Secrets:
    """Secret values to mask."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part.strip() for value in values for part in (value, *value.splitlines())}
        kept = sorted((part for part in parts if len(part) >= SECRET_CHARS_MIN), key=_longest_first)
        self._texts = kept
        self._values = [part.encode("utf-8", "surrogateescape") for part in kept]
        self._any = re.compile(b"|".join(map(re.escape, self._values)))

    def __bool__(self) -> bool:
        return bool(self._values)

    def hide(self, text: str) -> str:
        """Masks all values in a text."""
        for value in self._texts:
            text = text.replace(value, MASK.decode())
        return text

    def split(self, data: bytes, withheld: int) -> tuple[bytes, bytes]:
        """Returns the beginning of `data`, masked, and its end as it is: at least `withheld` bytes
        long."""
        cut = len(data) - withheld
        if not any(value in data for value in self._values):
            return data[:cut], data[cut:]
        pieces: list[bytes] = []
        done = 0
        for found in self._any.finditer(data):
            if found.end() > cut:
                # The withheld end must not begin in the middle of a secret.
                cut = min(cut, found.start())
                break
            pieces += data[done : found.start()], MASK
            done = found.end()
        pieces.append(data[done:cut])
        return b"".join(pieces), data[cut:]

    def partial_bytes(self, data: bytes) -> int:
        """Counts the bytes at the end of `data` that may be the beginning of a secret."""
        return max((_partial_bytes(data, value) for value in self._values), default=0)


def _longest_first(value: str) -> tuple[int, str]:
    return -len(value), value


def _partial_bytes(data: bytes, value: bytes) -> int:
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at >= 0 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) - at if at >= 0 else 0


NO_SECRETS = Secrets(())


class StreamMasking:
    """Masks secrets in a stream of bytes, also where one is split over two reads."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._withheld = b""

    def add(self, data: bytes) -> bytes:
        """Returns what can be shown now; bytes that may become a secret are withheld."""
        if not self._secrets:
            return data
        data = self._withheld + data
        shown, self._withheld = self._secrets.split(data, self._secrets.partial_bytes(data))
        return shown

    def end(self) -> bytes:
        """Returns the rest; a truncated secret is masked if enough of it is there."""
        partial_bytes = self._secrets.partial_bytes(self._withheld)
        shown, rest = self._secrets.split(
            self._withheld, partial_bytes if partial_bytes >= SECRET_CHARS_MIN else 0
        )
        self._withheld = b""
        return shown + MASK if rest else shown


def secrets_of(
    task_env: Mapping[str, str], named: Iterable[str], own_env: Mapping[str, str]
) -> Secrets:
    """Collects a job's variables that look secret, and those that the operator named.

    A named variable is looked up in the worker's own environment too: a job may read it from there
    or from the file it came from. A password inside a URL is one whatever the variable is called.
    """
    values = [value for name, value in task_env.items() if SECRET_NAME.search(name)]
    values += [env[name] for name in named for env in (task_env, own_env) if name in env]
    for value in task_env.values():
        values += PASSWORD_IN_URL.findall(value)
    return Secrets(values) if values else NO_SECRETS
