"""What may be asked of a scheduler about what is to come; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.inputs import Submit
from rota.core.life import deadlines
from rota.core.life.recall import Memory
from rota.core.model import ExecutionId, Instant, JobId, JobRecord
from rota.core.outlook.rehearsal import Picture, picture, size
from rota.core.outlook.relief import Relief, reliefs
from rota.core.records.glance import Cause, Deadline, Position
from rota.core.steps.intake import check_submit
from rota.core.tables import Tables
from rota.core.why.place import fluid_start, position_of


class Foreseeing:
    """Where a job stands, what would help it, and what a copy needs to go on by itself."""

    _t: Tables

    def position(self, job_id: JobId, record: JobRecord | None = None) -> Position | None:
        """Where a job that waits for a worker stands; None: in no line."""
        return position_of(self._t, job_id, record)

    def reliefs(self, job_id: JobId, causes: Sequence[Cause], now: Instant) -> tuple[Relief, ...]:
        """What would help a job that these causes keep waiting."""
        return reliefs(self._t, job_id, causes, now)

    def deadline(self, job: JobRecord, start: Instant | None, now: Instant) -> Deadline | None:
        """How a job stands to its deadline, if it has one."""
        return deadlines.foretell(self._t, job, start, now)

    def expected_end(self, execution_id: ExecutionId) -> Instant | None:
        """When what runs will probably end."""
        cell = self._t.executions.get(execution_id)
        return None if cell is None else cell.ends_at

    def picture(self, wanted: Sequence[JobId], now: Instant) -> Picture:
        """What a copy needs to play the next starts through."""
        return picture(self._t, wanted, now)

    def picture_size(self) -> int:
        """How much of it there is whatever waits."""
        return size(self._t)

    def fluid_start(self, job_id: JobId, record: JobRecord | None, now: Instant) -> Instant | None:
        """When a job would start if those before it flowed evenly through what could run them."""
        return fluid_start(self._t, job_id, record, now)

    def check_submit(self, event: Submit, now: Instant) -> None:
        """Raises the refusal that these jobs would meet."""
        check_submit(self._t, event, Memory(self._t, event.recall, now, is_still=True))
