"""Hides secrets by value in what leaves the worker: output as it streams, and messages.

Which values are secret is told by the names of the variables that carry them. A value is found as
the bytes it is: one that a job prints encoded or cut into pieces of its own is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

SECRET_CHARS_MIN = 6
"""A shorter value would hide half of every log, and keeps no secret anyway."""
MASK = b"***"
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|KEY|CREDENTIAL|PRIVATE|COOKIE|AUTHORI[SZ]ATION|_(PASS|PWD)$",
    re.IGNORECASE,
)
PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


class Secrets:
    """Values that nobody may read in a log."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part.strip() for value in values for part in (value, *value.splitlines())}
        kept = sorted((part for part in parts if len(part) >= SECRET_CHARS_MIN), key=_longest_first)
        self._texts = kept
        self._values = [part.encode("utf-8", "surrogateescape") for part in kept]
        self._any = re.compile(b"|".join(map(re.escape, self._values)))

    def __bool__(self) -> bool:
        return bool(self._values)

    def hide(self, text: str) -> str:
        """A whole text without them."""
        for value in self._texts:
            text = text.replace(value, MASK.decode())
        return text

    def split(self, data: bytes, held: int) -> tuple[bytes, bytes]:
        """The beginning of `data` without them; and its end, at least `held` long, as it is."""
        cut = len(data) - held
        if not any(value in data for value in self._values):
            return data[:cut], data[cut:]
        pieces: list[bytes] = []
        done = 0
        for found in self._any.finditer(data):
            if found.end() > cut:
                # What is held back must not begin in the middle of a secret.
                cut = min(cut, found.start())
                break
            pieces += data[done : found.start()], MASK
            done = found.end()
        pieces.append(data[done:cut])
        return b"".join(pieces), data[cut:]

    def begun(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the beginning of a secret."""
        return max((_begun(data, value) for value in self._values), default=0)


def _longest_first(value: str) -> tuple[int, str]:
    return -len(value), value


def _begun(data: bytes, value: bytes) -> int:
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at >= 0 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) - at if at >= 0 else 0


NO_SECRETS = Secrets(())


class StreamMasking:
    """Hides secrets in a stream of bytes, wherever a read happens to cut them."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""

    def add(self, data: bytes) -> bytes:
        """What may be shown of it now; the beginning of what may become a secret waits."""
        if not self._secrets:
            return data
        data = self._held + data
        shown, self._held = self._secrets.split(data, self._secrets.begun(data))
        return shown

    def end(self) -> bytes:
        """The rest. A secret that was cut off counts as one if that much of it is there."""
        begun = self._secrets.begun(self._held)
        shown, rest = self._secrets.split(self._held, begun if begun >= SECRET_CHARS_MIN else 0)
        self._held = b""
        return shown + MASK if rest else shown


def secrets_of(
    task_env: Mapping[str, str], named: Iterable[str], own_env: Mapping[str, str]
) -> Secrets:
    """Those of a job's variables that look secret, and those that the operator named.

    A named variable is looked up in the worker's own environment too: a job may read it from there
    or from the file it came from. A password inside a URL is one whatever the variable is called.
    """
    values = [value for name, value in task_env.items() if SECRET_NAME.search(name)]
    values += [env[name] for name in named for env in (task_env, own_env) if name in env]
    for value in task_env.values():
        values += PASSWORD_IN_URL.findall(value)
    return Secrets(values) if values else NO_SECRETS
