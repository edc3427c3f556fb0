"""Finds a call by its path, word by word, however many calls there are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

Match: TypeAlias = tuple[ASGIApp, dict[str, str]]


class _RouteNode:
    """How far a path has been followed, and where it can go on."""

    __slots__ = ("any_word", "call", "names", "takes_slashes", "words")

    def __init__(self) -> None:
        self.words: dict[str, _RouteNode] = {}
        self.any_word: _RouteNode | None = None
        self.call: ASGIApp | None = None
        """What is here."""
        self.names: tuple[str, ...] = ()
        """Of the words on the way here that may be any."""
        self.takes_slashes = False
        """Whether the last of them may have slashes in it."""


class Router:
    """The calls of the api. What it does not find, such as pages and mistakes, it passes on."""

    def __init__(
        self, app: ASGIApp, calls: Mapping[str, ASGIApp], deep: Collection[str] = ()
    ) -> None:
        """`calls` are by their paths: `/jobs/{job_id}`; in the last word of `deep` ones may be
        slashes."""
        self._app = app
        self._root = _RouteNode()
        for path, call in calls.items():
            self._enter(path, call).takes_slashes = path in deep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands over to the call that the path names."""
        found = self._found(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
        else:
            call, scope["path_params"] = found
            await call(scope, receive, send)

    def _found(self, scope: Scope) -> Match | None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" not in raw.lower():
            return self.find(scope["path"])
        # An encoded slash is a part of its word, wherever the word stands.
        words = raw.partition(b"?")[0].decode("latin-1").split("/")
        return self._follow([unquote(word) for word in words])

    def find(self, path: str) -> Match | None:
        """A call, and the words of the path that were for it to say."""
        return self._follow(path.split("/"))

    def _follow(self, words: Sequence[str]) -> Match | None:
        place, said = self._root, []
        rest: Match | None = None
        for number, word in enumerate(words):
            known = place.words.get(word)
            if known is None:
                known = place.any_word
                if known is None or not word:
                    return rest
                said.append(word)
                if known.takes_slashes:
                    assert known.call is not None
                    last = "/".join(words[number:])
                    rest = known.call, dict(zip(known.names, [*said[:-1], last], strict=True))
            place = known
        if place.call is None:
            return rest
        return place.call, dict(zip(place.names, said, strict=True))

    def _enter(self, path: str, call: ASGIApp) -> _RouteNode:
        place, names = self._root, []
        for word in path.split("/"):
            if word.startswith("{"):
                names.append(word.strip("{}"))
                place.any_word = place = place.any_word or _RouteNode()
            else:
                place = place.words.setdefault(word, _RouteNode())
        place.call, place.names = call, tuple(names)
        return place
