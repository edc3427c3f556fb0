"""Where a server listens, and what it refuses to listen on."""

from __future__ import annotations

import ipaddress
import resource
import socket

import click

from rota.api.door.lobby import Lobby
from rota.api.limits import CONNECTIONS_MAX, FILES_RESERVED
from rota.cli.start.up import DoorOptions


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        hint = "another server? take another with --port" if port else "is the address right?"
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {error.strerror} ({hint})"
        ) from (error)
    listening.listen(1024)
    listening.setblocking(False)  # noqa: FBT003  (the standard library's signature)
    return listening


def refuse_open_door(options: DoorOptions) -> None:
    """A job API is remote execution: beyond this machine only with TLS, or an explicit word."""
    if is_loopback(options.host):
        return
    if not options.auth:
        raise click.ClickException("--no-auth is allowed on loopback only")
    if options.tls_cert is None and not options.insecure:
        raise click.ClickException(
            f"listening on {options.host} would send tokens and jobs in the clear: give"
            " --tls-cert and --tls-key, or say --insecure if something in front does TLS"
        )


def is_everywhere(host: str) -> bool:
    """Whether it stands for all addresses of this machine."""
    return host in ("0.0.0.0", "::", "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def url_of(options: DoorOptions, listening: socket.socket) -> str:
    """What people and workers call this server."""
    scheme = "http" if options.tls_cert is None else "https"
    name = options.names[0] if options.names else _host_text(options.host)
    return f"{scheme}://{name}:{listening.getsockname()[1]}"


def open_lobby(options: DoorOptions) -> Lobby:
    """For as many connections as were asked for, or as the system allows.

    A process that may open no more files can still be connected to, but cannot serve a log or a
    file any more: so its connections end first.
    """
    allowed = _files_allowed((options.connections_max or CONNECTIONS_MAX) + FILES_RESERVED)
    room = allowed - FILES_RESERVED
    if options.connections_max is not None and room < options.connections_max:
        raise click.ClickException(
            f"--connections-max {options.connections_max} needs a limit of"
            f" {options.connections_max + FILES_RESERVED} open files, and here it is {allowed}:"
            " raise it (ulimit -Hn, or LimitNOFILE= of the service)"
        )
    return Lobby(max(1, min(room, options.connections_max or CONNECTIONS_MAX)))


def _files_allowed(wanted: int) -> int:
    """How many files this process may open from now on: as many as wanted, if it may ask so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):  # some systems have further limits
        return soft
    return allowed
