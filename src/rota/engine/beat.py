"""Aligns periodic work of a server to common moments: one wake-up of the process serves several.

For an idle process a timer costs more than most of the work that it starts.
"""

from __future__ import annotations

import asyncio

from rota.engine.limits import BEAT_NEAR_PART, BEAT_NEAR_S_MAX


async def beat(every_s: float) -> None:
    """Sleeps until the next multiple of `every_s` on the loop's clock, which all callers share.

    Each caller has its own timer; the loop runs timers of the same millisecond in one round.
    """
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_beat(now_s, every_s) - now_s)


def next_beat(now_s: float, every_s: float) -> float:
    """Returns the next multiple of `every_s`; one that is very near counts as past.

    A timer may fire a moment early, and the same moment must not come twice.
    """
    near_s = min(every_s * BEAT_NEAR_PART, BEAT_NEAR_S_MAX)
    return ((now_s + near_s) // every_s + 1) * every_s
