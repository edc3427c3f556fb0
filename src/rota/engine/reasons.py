"""Remembers for which first cause a job waited whenever somebody asked; lost with the process."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from rota.core.model import Instant, JobId
from rota.engine.estimates import ObservedCause
from rota.engine.limits import WAIT_CAUSES_EACH, WAIT_HISTORIES_KEPT


class WaitHistory:
    """The last few first causes of the jobs that were asked about last."""

    def __init__(self) -> None:
        self._seen: OrderedDict[JobId, list[ObservedCause]] = OrderedDict()

    def note(self, job_id: JobId, code: str, now: Instant) -> tuple[ObservedCause, ...]:
        """It waits for this now; answers all that is remembered."""
        spells = self._seen.setdefault(job_id, [])
        self._seen.move_to_end(job_id)
        if spells and spells[-1].code == code:
            spells[-1] = replace(spells[-1], last=now)
        else:
            spells.append(ObservedCause(code, now, now))
            del spells[:-WAIT_CAUSES_EACH]
        if len(self._seen) > WAIT_HISTORIES_KEPT:
            self._seen.popitem(last=False)
        return tuple(spells)
