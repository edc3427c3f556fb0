"""Reads the file that says what to listen to and whom to tell."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

Word: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
EventType: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=255, pattern=r"^(?!rota\.)[^\s*]+$")
]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]


class ConfigError(Exception):
    """The file cannot be used; the text says why."""


class ConfigEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every source and sink has."""

    name: Word


class Source(ConfigEntry, kw_only=True):
    """What is listened to; plain messages become events of this type."""

    type: EventType | None = None


class FolderSource(Source, kw_only=True, tag="folder"):
    """A folder: a file that comes, or changes, is an event once it has stopped growing."""

    path: Path
    pattern: str = "*"
    recursive: bool = False
    every: Seconds = 1.0
    existing: bool = False
    """Whether files that are there at the very first look count."""


class PostgresSource(Source, kw_only=True, tag="postgres"):
    """NOTIFY on a channel. PostgreSQL keeps nothing for those who are away."""

    dsn: str
    channel: Annotated[str, Meta(min_length=1, max_length=63)]


class RedisSource(Source, kw_only=True, tag="redis"):
    """A Redis stream, read as a member of a group."""

    url: str
    stream: str
    group: str = "rota"
    field: str = "data"
    """Of a message, the field that is the data; where it has none, all its fields are."""


class NatsSource(Source, kw_only=True, tag="nats"):
    """A JetStream stream, by a durable consumer."""

    url: str
    stream: str
    subject: str
    durable: str = "rota"


class RabbitSource(Source, kw_only=True, tag="rabbitmq"):
    """A RabbitMQ queue that is there."""

    url: str
    queue: str


class KafkaSource(Source, kw_only=True, tag="kafka"):
    """A Kafka topic, read as a member of a group."""

    servers: str
    topic: str
    group: str = "rota"


class Sink(ConfigEntry, kw_only=True):
    """Who is told of state changes."""

    events: list[str] = msgspec.field(default_factory=lambda: ["rota.job.*"])
    """Types, or `prefix.*`."""
    attempts: Annotated[int, Meta(ge=0, le=1_000)] = 12
    """Tries before a change goes to the dead letters; 0: for ever."""


class WebhookSink(Sink, kw_only=True, tag="webhook"):
    """Signed requests to a URL."""

    url: Annotated[str, Meta(pattern=r"^https?://")]
    secret: Annotated[str, Meta(min_length=16)]
    headers: dict[str, str] = {}


class RedisSink(Sink, kw_only=True, tag="redis"):
    """A Redis stream."""

    url: str
    stream: str
    max_length: Annotated[int, Meta(ge=1)] = 100_000


class NatsSink(Sink, kw_only=True, tag="nats"):
    """A JetStream stream; each type is a subject below `subject`."""

    url: str
    stream: str
    subject: str


class RabbitSink(Sink, kw_only=True, tag="rabbitmq"):
    """A RabbitMQ queue that is there."""

    url: str
    queue: str


class KafkaSink(Sink, kw_only=True, tag="kafka"):
    """A Kafka topic, keyed by what changed."""

    servers: str
    topic: str


AnySource: TypeAlias = (
    FolderSource | PostgresSource | RedisSource | NatsSource | RabbitSource | KafkaSource
)
AnySink: TypeAlias = WebhookSink | RedisSink | NatsSink | RabbitSink | KafkaSink


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Any text may be `env:NAME` or `file:PATH`, which is then read instead."""

    url: str | None = None
    token: str | None = None
    state: Path = Path("rota-events")
    source: list[AnySource] = []
    sink: list[AnySink] = []
    version: Literal[1] = 1


def read_config(path: Path) -> Config:
    """The file; raises ConfigError that says what is wrong with it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        config = msgspec.convert(_resolved(values), Config, dec_hook=_as_path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # of TOML, and of UTF-8
        raise ConfigError(f"{path}: {error}") from error
    entries: list[ConfigEntry] = [*config.source, *config.sink]
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: two entries are named {twice!r}")
    if not names:
        raise ConfigError(f"{path}: it names no [[source]] and no [[sink]]")
    return config


def _as_path(kind: type, value: Any) -> Any:
    if kind is not Path or not isinstance(value, str):
        raise ValueError("expected a path")
    return Path(value)


def _resolved(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _resolved(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_resolved(one) for one in value]
    if isinstance(value, str) and value.startswith("env:"):
        name = value[4:]
        if name not in os.environ:
            raise ConfigError(f"the environment has no {name}, which {value!r} asks for")
        return os.environ[name]
    if isinstance(value, str) and value.startswith("file:"):
        return _read_secret(value[5:])
    return value


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {path!r}, which is to be read instead: {why}") from error
