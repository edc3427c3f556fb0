"""Dask's side: a scheduler and two worker processes that the driver starts; nothing is durable."""

from __future__ import annotations

import start_signal
from distributed import Client, Future, LocalCluster, wait

_opened: list[Client] = []
_given: list[Future] = []
_done = 0


def noop(_: int) -> None:
    """Nothing."""


def spin(_: int) -> None:
    start_signal.spin()


KINDS = {"noop": noop, "spin": spin}


def _ours() -> Client:
    if not _opened:
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        _opened.append(Client(cluster))
    return _opened[0]


def submit_jobs(kind: str, count: int) -> None:
    _given.extend(_ours().map(KINDS[kind], range(count), pure=False))


def call() -> None:
    future = _ours().submit(start_signal.send, pure=False)
    _given.append(future)


def recorded() -> int:
    global _done
    if _given:
        wait(_given)
        _done += sum(not future.key.startswith("send") for future in _given)
        _given.clear()
    return _done
