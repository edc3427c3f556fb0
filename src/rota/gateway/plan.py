"""What a gateway was told: cells with their servers, weights and pins; refused if it cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from rota.gateway.limits import CELLS_MAX, SERVERS_PER_CELL_MAX
from rota.gateway.ring import TenantRouter
from rota.wire.cells import cell_tag, is_cell_name


class ConfigError(ValueError):
    """The options do not fit together; says what to do."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Cells by name, each with the addresses of its servers, and who goes where."""

    cells: Mapping[str, Sequence[str]]
    router: TenantRouter


def make_config(
    cells: Iterable[tuple[str, str]],
    weights: Iterable[tuple[str, str]] = (),
    pins: Iterable[tuple[str, str]] = (),
) -> GatewayConfig:
    """From `name=URL`, `name=weight`, `tenant=name`; a cell named twice has two servers."""
    servers: dict[str, list[str]] = {}
    for name, url in cells:
        _check_cell(name, url)
        servers.setdefault(name, []).append(url.rstrip("/"))
    _check_fleet(servers)
    pinned = dict(pins)
    for name in pinned.values():
        _check_known(name, servers, "--pin")
    return GatewayConfig(servers, TenantRouter(_weights(servers, weights), pinned))


def _check_cell(name: str, url: str) -> None:
    if not is_cell_name(name):
        raise ConfigError(f"--cell {name}=…: a cell's name has small letters, digits and -")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--cell {name}={url}: write the address like https://host:7070")
    if parts.path.strip("/") or parts.query or parts.username:
        raise ConfigError(f"--cell {name}: the address has nothing but scheme, host and port")


def _check_fleet(servers: Mapping[str, Sequence[str]]) -> None:
    if not servers:
        raise ConfigError("name at least one cell: --cell NAME=URL")
    if len(servers) > CELLS_MAX:
        raise ConfigError(f"{len(servers)} cells: a gateway has at most {CELLS_MAX}")
    tags: dict[str, str] = {}
    for name, urls in servers.items():
        if len(urls) > SERVERS_PER_CELL_MAX:
            raise ConfigError(f"cell {name} has more than {SERVERS_PER_CELL_MAX} servers")
        other = tags.setdefault(cell_tag(name), name)
        if other != name:
            raise ConfigError(
                f"the cells {other} and {name} have the same tag {cell_tag(name)} in their ids,"
                " so an id would not say which of them it is of: call the newer one otherwise"
            )


def _check_known(name: str, servers: Mapping[str, Sequence[str]], option: str) -> None:
    if name not in servers:
        raise ConfigError(f"{option}: there is no cell {name!r}; there are {', '.join(servers)}")


def _weights(
    servers: Mapping[str, Sequence[str]], given: Iterable[tuple[str, str]]
) -> dict[str, float]:
    weights = dict.fromkeys(servers, 1.0)
    for name, text in given:
        _check_known(name, servers, "--weight")
        try:
            weights[name] = float(text)
        except ValueError:
            raise ConfigError(f"--weight {name}={text}: a number, such as 2 or 0.5") from None
        if not 0 <= weights[name] <= 1e6:
            raise ConfigError(f"--weight {name}={text}: from 0 (nothing new) to 1000000")
    if not any(weights.values()):
        raise ConfigError("all cells have weight 0: nothing could be submitted")
    return weights
