"""Catalogue of peers: what each needs, its pinned versions, and how its worker is started.

Settings are those that each one's own documents advise for many short jobs; what else is set is in
its side. Python and Node.js have two worker processes or one, whichever their documents show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class Needs(Enum):
    NOTHING = auto()
    """The memory of its own processes."""
    REDIS = auto()
    """Without any persistence: what it holds is gone with its process."""
    REDIS_DURABLE = auto()
    """`appendfsync always`: as durable as an answer of Rota."""
    RABBITMQ = auto()
    """Durable queues and messages; results in a Redis that forgets."""
    SLURM = auto()
    """The state files of its own controller."""
    POSTGRES = auto()
    """The same settings as under Rota, every commit synced."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    side: str
    needs: Needs
    pins: tuple[str, ...]
    worker: tuple[str, ...] = ()
    """Its command; a program of its environment, `python` among them. Empty: its driver has it."""
    workers: int = 1
    node: bool = False
    ease: int = 1
    """Of so many jobs one is enough to see its rate."""
    prepares: bool = False
    """Whether its side has a `prepare()` that makes the tables before a worker may start."""


_REDIS = ("redis==8.1.0", "hiredis==3.5.0")
_CELERY = Peer(
    "Celery, Redis",
    "celery_side",
    Needs.REDIS,
    ("celery[redis]==5.7.0", *_REDIS),
    (
        *("celery", "--app", "celery_side:app", "worker", "--loglevel", "ERROR"),
        *("--pool", "prefork", "--concurrency", "2"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ),
    ease=10,
)
_DRAMATIQ = Peer(
    "Dramatiq",
    "dramatiq_side",
    Needs.REDIS,
    ("dramatiq[redis]==2.2.1", *_REDIS),
    ("dramatiq", "dramatiq_side", "--processes", "2", "--threads", "8"),
)
_HUEY = Peer(
    "Huey",
    "huey_side",
    Needs.REDIS,
    ("huey==3.5.4", *_REDIS),
    (
        *("huey_consumer", "huey_side.queue", "--workers", "2", "--worker-type", "process"),
        *("--no-periodic", "--quiet"),
    ),
)
_TASKIQ = Peer(
    "Taskiq",
    "taskiq_side",
    Needs.REDIS,
    ("taskiq==0.13.0", "taskiq-redis==1.2.4", "uvloop==0.23.0", *_REDIS),
    (
        *("taskiq", "worker", "taskiq_side:broker", "--workers", "2"),
        *("--no-parse", "--log-level", "ERROR"),
    ),
)
_BULLMQ = Peer(
    "BullMQ",
    "bullmq_side",
    Needs.REDIS,
    ("bullmq@6.7.0", "ioredis@5"),
    ("node", "drive.mjs", "bullmq_side", "work"),
    node=True,
)


def _durable(peer: Peer) -> Peer:
    name = f"{peer.name.removesuffix(', Redis')}, Redis syncs"
    return replace(peer, name=name, needs=Needs.REDIS_DURABLE)


PEERS: tuple[Peer, ...] = (
    Peer(
        "graphile-worker",
        "graphile_side",
        Needs.POSTGRES,
        ("graphile-worker@0.17.3", "pg@8.23.1"),
        ("node", "drive.mjs", "graphile_side", "work"),
        node=True,
        prepares=True,
    ),
    Peer(
        "pg-boss",
        "pgboss_side",
        Needs.POSTGRES,
        ("pg-boss@10.4.2", "pg@8.23.1"),
        ("node", "drive.mjs", "pgboss_side", "work"),
        node=True,
        prepares=True,
    ),
    Peer(
        "PgQueuer",
        "pgqueuer_side",
        Needs.POSTGRES,
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        ("python", "pgqueuer_side.py"),
        prepares=True,
    ),
    Peer(
        "Procrastinate",
        "procrastinate_side",
        Needs.POSTGRES,
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        ("python", "procrastinate_side.py"),
        ease=10,
        prepares=True,
    ),
    Peer(
        "DBOS",
        "dbos_side",
        Needs.POSTGRES,
        ("dbos==3.3.0", "psycopg[binary]==3.3.8"),
        ("python", "dbos_side.py"),
        ease=10,
        prepares=True,
    ),
    _CELERY,
    replace(_CELERY, name="Celery, RabbitMQ", needs=Needs.RABBITMQ),
    _DRAMATIQ,
    _HUEY,
    _TASKIQ,
    _BULLMQ,
    *(_durable(peer) for peer in (_CELERY, _DRAMATIQ, _HUEY, _TASKIQ, _BULLMQ)),
    Peer("dask.distributed", "dask_side", Needs.NOTHING, ("distributed==2026.8.0",), ease=10),
    Peer("Slurm", "slurm_side", Needs.SLURM, (), ease=10),
    Peer(
        "Airflow",
        "airflow_side",
        Needs.POSTGRES,
        ("apache-airflow==3.3.2", "psycopg2-binary==2.9.13", "asyncpg==0.32.0"),
        ("python", "airflow_side.py"),
        ease=100,
        prepares=True,
    ),
)
