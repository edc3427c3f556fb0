"""Runs a function in a new process, so that a measurement does not inherit another one's heap."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_new_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
        return pool.submit(work, *args, **kwargs).result()
