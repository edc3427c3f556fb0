"""Configuration of the event bridge: reads the file with its sources and sinks."""

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
    """The configuration cannot be used; the text says why."""


class ConfigEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Fields that every source and sink has."""

    name: Word


class Source(ConfigEntry, kw_only=True):
    """Source of events."""

    type: EventType | None = None
    """Type of the events made of plain messages."""


class FolderSource(Source, kw_only=True, tag="folder"):
    """Folder: a new or changed file is an event once it has stopped growing."""

    path: Path
    pattern: str = "*"
    recursive: bool = False
    every: Seconds = 1.0
    existing: bool = False
    """Whether files that exist at the very first look count."""


class PostgresSource(Source, kw_only=True, tag="postgres"):
    """PostgreSQL's NOTIFY on a channel, which keeps nothing for a listener that is away."""

    dsn: str
    channel: Annotated[str, Meta(min_length=1, max_length=63)]


class RedisSource(Source, kw_only=True, tag="redis"):
    """Redis stream, read as a member of a group."""

    url: str
    stream: str
    group: str = "rota"
    field: str = "data"
    """The field of a message that is the data; without it all fields are."""


class NatsSource(Source, kw_only=True, tag="nats"):
    """NATS JetStream stream, read by a durable consumer."""

    url: str
    stream: str
    subject: str
    durable: str = "rota"


class RabbitSource(Source, kw_only=True, tag="rabbitmq"):
    """RabbitMQ queue, which must exist."""

    url: str
    queue: str


class KafkaSource(Source, kw_only=True, tag="kafka"):
    """Kafka topic, read as a member of a group."""

    servers: str
    topic: str
    group: str = "rota"


class Sink(ConfigEntry, kw_only=True):
    """Sink of state changes."""

    events: list[str] = msgspec.field(default_factory=lambda: ["rota.job.*"])
    """Types, or `prefix.*`."""
    attempts: Annotated[int, Meta(ge=0, le=1_000)] = 12
    """Attempts before a change goes to the dead letters; 0: no limit."""


class WebhookSink(Sink, kw_only=True, tag="webhook"):
    """Webhook: signed requests to a URL."""

    url: Annotated[str, Meta(pattern=r"^https?://")]
    secret: Annotated[str, Meta(min_length=16)]
    headers: dict[str, str] = {}


class RedisSink(Sink, kw_only=True, tag="redis"):
    """Redis stream."""

    url: str
    stream: str
    max_length: Annotated[int, Meta(ge=1)] = 100_000


class NatsSink(Sink, kw_only=True, tag="nats"):
    """NATS JetStream stream; each type is a subject below `subject`."""

    url: str
    stream: str
    subject: str


class RabbitSink(Sink, kw_only=True, tag="rabbitmq"):
    """RabbitMQ queue, which must exist."""

    url: str
    queue: str


class KafkaSink(Sink, kw_only=True, tag="kafka"):
    """Kafka topic; the key is the subject that changed."""

    servers: str
    topic: str


AnySource: TypeAlias = (
    FolderSource | PostgresSource | RedisSource | NatsSource | RabbitSource | KafkaSource
)
AnySink: TypeAlias = WebhookSink | RedisSink | NatsSink | RabbitSink | KafkaSink


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Contents of the file. Any text may be `env:NAME` or `file:PATH`: then it is read there."""

    url: str | None = None
    token: str | None = None
    state: Path = Path("rota-events")
    source: list[AnySource] = []
    sink: list[AnySink] = []
    version: Literal[1] = 1


def read_config(path: Path) -> Config:
    """Reads the file; raises ConfigError, which says what is wrong with it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        config = msgspec.convert(_resolved(values), Config, dec_hook=_as_path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # of TOML, and of UTF-8
        raise ConfigError(f"{path}: {error}") from error
    entries: list[ConfigEntry] = [*config.source, *config.sink]
    names = [entry.name for entry in entries]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"{path}: two entries are named {repeated!r}; give each its own name")
    if not names:
        raise ConfigError(f"{path}: it has no [[source]] and no [[sink]]; add at least one")
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
            raise ConfigError(f"the environment variable {name}, named by {value!r}, is not set")
        return os.environ[name]
    if isinstance(value, str) and value.startswith("file:"):
        return _read_secret(value[5:])
    return value


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {path!r}, named by 'file:{path}': {why}") from error
