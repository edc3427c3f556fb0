"""Discovery of the server and the token: from the environment, else from the files of a local
server.

A token is only sent to the address it was found with: naming another server does not send it the
local token, and the token of a server that has stopped is sent nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

URL_DEFAULT = "http://127.0.0.1:7070"
DATA_DEFAULT = ".rota"
LOCAL_FILE = "local.json"
TOKEN_FILE = "token"
_PORTS = {"http": 80, "https": 443}
_NAMED = (_CALL, _ENVIRONMENT) = ("the call", "ROTA_URL")
"""Sources that name an address explicitly; otherwise a file or the default does."""
DEFAULT = "the default"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of the server, and the token."""

    url: str
    token: str | None
    url_from: str
    """Where the address was found, for messages."""
    token_from: str | None
    looked_in: tuple[str, ...]
    """Every place a token was looked for, in order, and why it was not used."""
    data: str | None = None
    """The local server's data folder, where it is known."""
    others: tuple[str, ...] = ()
    """More servers of the same cell, asked in turn when one is away."""
    stopped: bool = False
    """`data` is of a server that has stopped and removed its address: the default
    address is used.
    """
    elsewhere: str | None = None
    """Address of another running local server of this user, which is not asked."""

    @property
    def urls(self) -> tuple[str, ...]:
        """All servers, in the order given."""
        return (self.url, *self.others)

    @property
    def shown(self) -> str:
        """All servers, for messages."""
        return ", ".join(self.urls)

    @property
    def is_local(self) -> bool:
        """Whether all servers are on this machine."""
        return all(map(is_loopback, self.urls))


class LocalServer(msgspec.Struct, kw_only=True):
    """Announcement file of a server on this machine."""

    url: str
    token: str | None = None
    data: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Result of looking in one place."""

    label: str
    local: LocalServer | None
    stopped: bool = False
    """A server left its token there and removed its address, as it does when it ends."""


def discover(
    url: str | Sequence[str] | None = None,
    token: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    default: str = URL_DEFAULT,
) -> Endpoint:
    """Finds the server: the arguments first, then the environment, ./.rota, the user's local
    server, and `default`.

    Several servers of one cell are a sequence, or one text with commas between them.
    """
    env = os.environ if environ is None else environ
    lookups = list(_local_servers(env, Path.cwd() if folder is None else folder, default))
    local = next((lookup for lookup in lookups if lookup.local is not None), None)
    found, url_from = _choose_urls(url, env, local, default)
    named = url_from in _NAMED
    token_from = "the call" if token else "ROTA_TOKEN"
    endpoint = Endpoint(
        url=found[0],
        token=_checked_token(token or env.get("ROTA_TOKEN", ""), token_from) or None,
        url_from=url_from,
        token_from=token_from,
        looked_in=("ROTA_TOKEN", *(lookup.label for lookup in lookups)),
        data=_data(local, found[0]),
        others=found[1:],
        stopped=not named and local is not None and local.stopped,
        elsewhere=None if named else _elsewhere(lookups, found[0]),
    )
    return endpoint if endpoint.token else _with_local_token(endpoint, lookups)


def _checked_token(text: str, source: str) -> str:
    """Removes surrounding white space; raises TokenError for text that cannot be a token."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        from rota.sdk.errors import TokenError

        raise TokenError(source)
    return token


def _with_local_token(endpoint: Endpoint, lookups: Sequence[_Lookup]) -> Endpoint:
    """Adds the token of a local server, if only that server is asked."""
    # If this folder's server has stopped, no other local server gets a token implicitly.
    for lookup in () if endpoint.stopped else lookups:
        local = lookup.local
        if local is not None and local.token and all(_same(local.url, u) for u in endpoint.urls):
            return replace(endpoint, token=local.token, token_from=lookup.label, data=local.data)
    return replace(endpoint, token_from=None)


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine."""
    host = (urlsplit(url).hostname or "").lower()
    return host in ("localhost", "::1") or host.startswith("127.")


def state_file(environ: Mapping[str, str]) -> Path:
    """Path of the announcement file of a user's local server."""
    home = environ.get("HOME") or str(Path.home())
    state = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
    return Path(state) / "rota" / LOCAL_FILE


def _choose_urls(
    given: str | Sequence[str] | None, env: Mapping[str, str], local: _Lookup | None, default: str
) -> tuple[tuple[str, ...], str]:
    if urls := _urls(given or ""):
        return urls, _CALL
    if urls := _urls(env.get("ROTA_URL", "")):
        return urls, _ENVIRONMENT
    if local is not None and local.local is not None:
        return (_normalised(local.local.url),), DEFAULT if local.stopped else local.label
    return (default,), DEFAULT


def _urls(given: str | Sequence[str]) -> tuple[str, ...]:
    texts = [given] if isinstance(given, str) else given
    parts = (part for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(_address_in(part.strip()) for part in parts if part.strip()))


def _address_in(given: str) -> str:
    url = _normalised(given)
    if not given.isprintable() or " " in given or not _names_a_server(given, url):
        # Imported here: a program that only declares jobs need not load it.
        from rota.sdk.errors import AddressError

        raise AddressError(given)
    return url


def _names_a_server(given: str, url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.scheme not in _PORTS or not host or port == 0:
        return False
    # A single word is more often a typing error (`http//x`) than a server at port 80.
    return "://" in given.rstrip("/") or port is not None or "." in host


def _local_servers(env: Mapping[str, str], folder: Path, default: str) -> Iterator[_Lookup]:
    here = folder / DATA_DEFAULT
    yield _read_local(here / LOCAL_FILE)
    # A running server has this file, even if another user owns it.
    if not os.path.lexists(here / LOCAL_FILE):
        yield _read_stopped(here / TOKEN_FILE, default)
    yield _read_local(state_file(env))


def _read_local(path: Path) -> _Lookup:
    text, fault = _read_own(path)
    if text is None:
        return _Lookup(f"{path} ({fault})", None)
    try:
        return _Lookup(str(path), msgspec.json.decode(text, type=LocalServer))
    except msgspec.MsgspecError:
        return _Lookup(f"{path} (not readable as JSON)", None)


def _read_stopped(path: Path, default: str) -> _Lookup:
    text, fault = _read_own(path)
    if text is None:
        return _Lookup(f"{path} ({fault})", None)
    # Any program may listen at the default address now: the token is not sent.
    guess = LocalServer(url=default, data=str(path.parent))
    return _Lookup(f"{path} (not sent: its server has stopped)", guess, stopped=True)


def _read_own(path: Path) -> tuple[bytes | None, str]:
    """Reads a file unless another user owns it, who could name a server of their own."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None, "owned by another user, ignored"
            return file.read(65_536), ""
    except FileNotFoundError:
        return None, "not there"
    except OSError as error:
        return None, (error.strerror or "unreadable").lower()


def _normalised(url: str) -> str:
    bare = url.strip().rstrip("/")
    return bare if "://" in bare else f"http://{bare}"


def _same(one: str, other: str) -> bool:
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(_normalised(url))
    host = (parts.hostname or "").lower()
    port = parts.port or _PORTS.get(parts.scheme)
    return parts.scheme, "127.0.0.1" if host == "localhost" else host, port


def _elsewhere(lookups: Sequence[_Lookup], url: str) -> str | None:
    others = (lookup.local.url for lookup in lookups if lookup.local and not lookup.stopped)
    return next((_normalised(one) for one in others if not _same(one, url)), None)


def _data(local: _Lookup | None, url: str) -> str | None:
    if local is None or local.local is None or not _same(local.local.url, url):
        return None
    return local.local.data
