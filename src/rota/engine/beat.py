"""A common beat for what a server does again and again: one wake-up of the process serves several.

A timer that rings costs an idle process more than most of what is done then.
"""

from __future__ import annotations

import asyncio

from rota.engine.limits import BEAT_NEAR_PART, BEAT_NEAR_S_MAX


async def beat(every_s: float) -> None:
    """Returns at the next multiple of `every_s` on the loop's clock, as all others do.

    Everybody has a timer; a loop lets those of the same millisecond ring in one of its rounds.
    """
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_beat(now_s, every_s) - now_s)


def next_beat(now_s: float, every_s: float) -> float:
    """Later than now by at most `every_s` and a little: a timer may ring a moment too early, and
    that beat is not to come twice."""
    near_s = min(every_s * BEAT_NEAR_PART, BEAT_NEAR_S_MAX)
    return ((now_s + near_s) // every_s + 1) * every_s
