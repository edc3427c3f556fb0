"""Server-sent events: bytes as they come, made into events. Does no I/O."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from rota.sdk.errors import AnswerError
from rota.wire.service import ChangeView

_LINE_END = re.compile(r"\r\n|\n|\r(?!$)")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream; `id` is where to resume.

    Its kind is `message` for a change, or `reset` where changes were missed for good: what one
    knows must then be read anew.
    """

    id: str
    kind: str
    data: bytes

    @property
    def change(self) -> ChangeView:
        """What changed."""
        try:
            return msgspec.json.decode(self.data, type=ChangeView)
        except msgspec.MsgspecError as error:
            raise AnswerError(f"cannot read an event of the stream: {error}") from error


class EventReader:
    """Cuts a stream into events, wherever the network cut it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""
        self._last_id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that are whole now."""
        *lines, self._left = _LINE_END.split(self._left + self._decoder.decode(chunk))
        for line in lines:
            if not line:
                yield from self._dispatch()
            elif not line.startswith(":"):
                self._field(*_parts(line))

    def _field(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._last_id = value

    def _dispatch(self) -> Iterator[Event]:
        data, self._data = "\n".join(self._data), []
        kind, self._kind = self._kind or "message", ""
        if data:
            yield Event(self._last_id, kind, data.encode())


def _parts(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")
