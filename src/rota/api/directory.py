"""Finds a call by its path, word by word, however many calls there are."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class _Place:
    """How far a path has been followed, and where it can go on."""

    __slots__ = ("any_word", "call", "names", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Place] = {}
        self.any_word: _Place | None = None
        self.call: ASGIApp | None = None
        """What is here."""
        self.names: tuple[str, ...] = ()
        """Of the words on the way here that may be any."""


class Directory:
    """The calls of the api. What it does not find, such as pages and mistakes, it passes on."""

    def __init__(self, app: ASGIApp, calls: Mapping[str, ASGIApp]) -> None:
        """`calls` are by their paths: `/jobs/{job_id}`."""
        self._app = app
        self._root = _Place()
        for path, call in calls.items():
            self._enter(path, call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands over to the call that the path names."""
        found = self.find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
        else:
            call, scope["path_params"] = found
            await call(scope, receive, send)

    def find(self, path: str) -> tuple[ASGIApp, dict[str, str]] | None:
        """A call, and the words of the path that were for it to say."""
        place, said = self._root, []
        for word in path.split("/"):
            known = place.words.get(word)
            if known is None:
                known = place.any_word
                if known is None or not word:
                    return None
                said.append(word)
            place = known
        if place.call is None:
            return None
        return place.call, dict(zip(place.names, said, strict=True))

    def _enter(self, path: str, call: ASGIApp) -> None:
        place, names = self._root, []
        for word in path.split("/"):
            if word.startswith("{"):
                names.append(word.strip("{}"))
                place.any_word = place = place.any_word or _Place()
            else:
                place = place.words.setdefault(word, _Place())
        place.call, place.names = call, tuple(names)
