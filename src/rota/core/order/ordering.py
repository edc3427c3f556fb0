"""WHICH job is next: lines of alike jobs, and the choice among the heads of the lines.

Jobs with the same queue and needs form a class. A worker has room for the first of a class or for
none of it, so a decision looks at heads of lines only, and its cost does not depend on what waits.
Classes are numbered, and a set of classes is the bits of one integer. Whose head goes first is for
the order to say (orders.py).

The rear of a long lane may be on the shelf (shelving.py); a mark stands in its place in line, so
that nobody who comes after what is on the shelf goes before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop

from rota.core.ids import line_number
from rota.core.limits import CORE_LIMITS, CoreLimits
from rota.core.memory.cells import NO_CLASS, JobCell, LineKey, QueueCell
from rota.core.model import Instant, JobId, Needs, Spec, Terms
from rota.core.order.kinds import Kind, Kinds
from rota.core.order.lanes import Lane, LaneKey, lane_key
from rota.core.order.orders import Order
from rota.core.order.party import JobClass, Line, Party, Short, Stand
from rota.core.order.row import Row

ON_SHELF = "\0"
"""What stands in a line for the first job of a lane that is on the shelf has a name that begins so:
it comes before every id."""


def is_mark(entry: LineKey) -> bool:
    """Whether it stands for a job on the shelf."""
    return entry[2][0] == ON_SHELF


class Lines:
    """All classes, and which of them have jobs in line."""

    def __init__(
        self,
        jobs: Mapping[JobId, JobCell],
        kinds: Kinds,
        order: Order,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self._limits = limits
        self._jobs = jobs
        self._kinds = kinds
        self.order = order
        self.classes: list[JobClass] = []
        self._by_key: dict[tuple[str, Needs], JobClass] = {}
        self._empty: dict[int, None] = {}
        self._lines: dict[int, Line] = {}
        self._lines_made = 0
        self.numbered: dict[int, Lane] = {}
        """Lanes with a line in the store, by its number."""
        self.shelves = 0
        """How many lanes have jobs on the shelf."""
        self.shelved = 0
        """How many jobs are on the shelf."""
        self.touched: dict[int, Lane] = {}
        """Lanes with jobs on the shelf that may want some of them back."""
        self.ready = 0
        """Bits of the classes with jobs in line or on the shelf."""
        self.fresh = 0
        """Bits of classes made since placement.py last looked."""
        self.reused = 0
        """Grows when a number is given to another class: whoever remembers bits must forget."""
        self.made = 0
        """Classes made so far."""

    def join(self, cell: JobCell, kind: Kind, now: Instant) -> JobClass:
        """The job stands in line."""
        assert cell.class_index == NO_CLASS
        stand = kind.stand
        if stand is None or not (stand.lane.kept or stand.lane.shelved):
            stand = self._find_stand(kind)
        party, line, lane, job_class = stand.party, stand.line, stand.lane, stand.job_class
        estimate, key = cell.estimate, (cell.place, cell.spec.order, cell.id)
        line.row.add(key, lane)
        is_usual = estimate == line.estimate or line.is_mixed
        if not is_usual or not line.waiting or line.short is not None:
            line.note_length(estimate, self.order.about(estimate), key)
        if party.by_length is not None:
            party.note_length(line, self.order.about(estimate), key)
        lane.kept += 1
        job_class.waiting += 1
        line.waiting += 1
        line.work += estimate
        if (seat := line.seat) is None or key < seat[1]:
            line.first = key
            party.seat(line, key)
        elif line.first is not None and line.first is not seat[1] and key < line.first:
            line.first = key  # its seat is too early still, which does no harm
        cell.class_index, cell.line_number = job_class.index, line.number
        if not party.waiting & job_class.bit:
            self._fill(party, job_class, now)
        return job_class

    def join_behind(self, first: JobCell, cells: Sequence[JobCell], now: Instant) -> None:
        """Jobs of the same terms as the first, which stands in line, each behind the one before."""
        kind = self._kinds.of(first.spec.terms)
        assert kind.stand is not None
        for cell in () if kind.stand.add_behind(first, cells) else cells:
            cell.estimate = first.estimate
            self.join(cell, kind, now)

    def _find_stand(self, kind: Kind) -> Stand:
        """Where such jobs stand, of whom nobody is left in the lane they had."""
        terms, queue, stand = kind.terms, kind.queue, kind.stand
        if stand is not None and stand.line.waiting and not stand.lane.number:
            # Others of the line are still there; and nothing is known of the lane but its key.
            lanes = stand.job_class.lanes
            stand.lane = lanes.setdefault(stand.lane.key, stand.lane)
            return stand
        job_class = self._class_of(queue, terms.needs)
        party = self.order.party(terms.tenant, queue)
        line = self._line_of(party, job_class, terms.tenant)
        kind.stand = Stand(party, line, self._lane_of(job_class, lane_key(terms)))
        return kind.stand

    def _fill(self, party: Party, job_class: JobClass, now: Instant) -> None:
        self._empty.pop(job_class.index, None)
        self.ready |= job_class.bit
        self.order.waits(party, job_class.bit, now)

    def _line_of(self, party: Party, job_class: JobClass, tenant: str) -> Line:
        line = party.lines.get(job_class.index)
        if line is None:
            self._lines_made += 1
            rank = self.order.rank(job_class.queue)
            row = Row(self._limits.long_lane)
            line = Line(self._lines_made, job_class, row, tenant, rank)
            party.lines[job_class.index] = line
            self._lines[line.number] = job_class.lines[line.number] = line
        return line

    def _lane_of(self, job_class: JobClass, key: LaneKey) -> Lane:
        lane = job_class.lanes.get(key)
        if lane is None:
            lane = job_class.lanes[key] = Lane(job_class.index, key)
        return lane

    def leave(self, cell: JobCell) -> None:
        """The job stands in line no longer, if it did; its entry is passed over later."""
        if cell.class_index == NO_CLASS:
            return
        line = self._lines[cell.line_number]
        line.work -= cell.estimate
        if line.first is not None and line.first[2] == cell.id:
            line.first = None
            line.row.drop_first()  # its entry, or of one who is gone: nobody is before the head
        self._left(cell, line, 1)
        cell.class_index = NO_CLASS

    def leave_together(self, cells: Sequence[JobCell]) -> None:
        """Jobs of the same terms leave their line; their entries are gone from its row already."""
        line = self._lines[cells[0].line_number]
        line.work -= sum(cell.estimate for cell in cells)
        self._left(cells[0], line, len(cells))
        for cell in cells:
            cell.class_index = NO_CLASS

    def _left(self, cell: JobCell, line: Line, count: int) -> None:
        """So many jobs like this one have left the line; their entries are passed over later."""
        job_class = line.job_class
        job_class.waiting -= count
        line.waiting -= count
        kind = self._kinds.known.get(id(cell.spec.terms))
        stand = None if kind is None else kind.stand
        lane = job_class.lanes[lane_key(cell.spec.terms)] if stand is None else stand.lane
        lane.kept -= count
        if lane.shelved:
            self.touched[lane.number] = lane
        elif not lane.kept:
            self._drop_lane(job_class, lane)
        if not line.waiting and not line.shelved:
            self._drop_line(job_class, line)
        elif line.row.size > 2 * line.waiting + 64:
            line.row.tidy(lambda entry: self.stands(entry, line))
            line.short = None

    def _drop_lane(self, job_class: JobClass, lane: Lane) -> None:
        del job_class.lanes[lane.key]
        self.numbered.pop(lane.number, None)

    def _drop_line(self, job_class: JobClass, line: Line) -> None:
        party = self.order.party(line.tenant, job_class.queue)
        del party.lines[job_class.index]
        party.unseat(line)
        del self._lines[line.number], job_class.lines[line.number]
        self.order.rests(party, job_class.bit)
        if not job_class.waiting and not job_class.shelved:
            self.ready &= ~job_class.bit
            self._empty[job_class.index] = None

    def reorder(self, order: Order, now: Instant) -> None:
        """Another order holds from now on: all stand in line anew. Costs what waits in memory."""
        self.order = order
        self._lines.clear()
        self._kinds.forget()
        for job_class in self.classes:
            job_class.lines.clear()
            for lane in job_class.lanes.values():
                lane.run = None
        for cell in self._jobs.values():
            cell.place = order.place(cell.spec)
            if cell.class_index != NO_CLASS:
                job_class = self.classes[cell.class_index]
                cell.class_index = NO_CLASS
                job_class.waiting -= 1
                job_class.lanes[lane_key(cell.spec.terms)].kept -= 1
                self.join(cell, self._kinds.of(cell.spec.terms), now)
        for lane in self.numbered.values():
            if lane.shelved:
                self._marked_line(lane, now).shelved += lane.shelved
                self._set_mark(lane)

    # The shelf

    def class_of(self, terms: Terms) -> JobClass | None:
        """The class of jobs like this, if there is one now."""
        return self._by_key.get((terms.queue, terms.needs))

    def lane(self, terms: Terms) -> Lane | None:
        """The lane of jobs like this, if there are any."""
        job_class = self.class_of(terms)
        return None if job_class is None else job_class.lanes.get(lane_key(terms))

    def shelved_of(self, queue: QueueCell) -> int:
        """How many jobs of the queue are on the shelf."""
        if not self.shelves:
            return 0
        classes = (one for one in self.classes if one.bit & queue.class_mask)
        return sum(job_class.shelved for job_class in classes)

    def number_of(self, lane: Lane) -> int:
        """The line of the store for the rear of this lane."""
        job_class = self.classes[lane.class_index]
        tenant, priority, length, _ = lane.key
        alike = (job_class.queue.queue.name, job_class.needs, priority, tenant, length)
        return line_number(alike)

    def stranger(self, lane: Lane, number: int) -> Lane:
        """A lane for a line of the store that is not what it would be called today."""
        job_class = self.classes[lane.class_index]
        return self._lane_of(job_class, (*lane.key[:3], number))

    def shelve(self, lane: Lane, like: Spec, edge: int, count: int = 1) -> None:
        """So many jobs of the lane, none of which arrived before `edge`, are put away.

        `like` is the first of them, or the last before them.
        """
        job_class = self.classes[lane.class_index]
        if not lane.number:
            lane.number = self.number_of(lane)
        self.numbered[lane.number] = lane
        lane.shelved += count
        job_class.shelved += count
        self.shelved += count
        self._marked_line(lane, like.created_at).shelved += count
        if lane.shelved == count:
            self.shelves += 1
            self.move_edge(lane, like, edge)

    def unshelve(self, lane: Lane, count: int) -> None:
        """So many jobs of the lane are back, and stand in line already."""
        job_class, line = self.classes[lane.class_index], self._marked_line(lane, 0)
        lane.shelved -= count
        job_class.shelved -= count
        line.shelved -= count
        self.shelved -= count
        if not lane.shelved:
            self.shelves -= 1
            lane.mark = lane.like = None
            line.first = None  # it may have been the mark
            if not lane.kept:
                self._drop_lane(job_class, lane)
            if not line.waiting and not line.shelved:
                self._drop_line(job_class, line)

    def move_edge(self, lane: Lane, like: Spec, edge: int) -> None:
        """No job of the lane that is on the shelf arrived before `edge`: the mark goes there."""
        lane.like, lane.edge = like, edge
        self._set_mark(lane)

    def _set_mark(self, lane: Lane) -> None:
        assert lane.like is not None
        line = self._marked_line(lane, 0)
        mark = (self.order.place(lane.like), lane.edge, JobId(f"{ON_SHELF}{lane.number}"))
        lane.mark = mark
        line.row.add_mark(mark)
        if line.seat is None or mark < line.seat[1]:
            self.order.party(line.tenant, line.job_class.queue).seat(line, mark)
        line.first = None  # it may have been the mark before, or behind this one

    def _marked_line(self, lane: Lane, now: Instant) -> Line:
        """The line in which the lane's mark stands."""
        job_class, tenant = self.classes[lane.class_index], lane.key[0]
        party = self.order.party(tenant, job_class.queue)
        line = self._line_of(party, job_class, tenant)
        if not party.waiting & job_class.bit:
            self._fill(party, job_class, now)
        return line

    def run_dry(self, mark: LineKey) -> None:
        """A worker has room for the first job of this shelf: the store is asked for it."""
        lane = self.numbered[int(mark[2][1:])]
        lane.dry = True
        self.touched[lane.number] = lane

    # Choosing

    def head(self, line: Line) -> LineKey:
        """The first entry of a line that has any: a job's, or the mark of a shelf."""
        if line.first is None:
            row = line.row
            first = row.first()
            # As many entries as jobs: each means something, and none is a mark.
            while row.size != line.waiting and not self.stands(first, line):
                row.drop_first()
                first = row.first()
            line.first = first
        return line.first

    def ready_since(self) -> dict[str, Instant]:
        """By queue, since when the oldest of the heads of its lines has been ready."""
        oldest: dict[str, Instant] = {}
        for line in self._lines.values():
            cell = self._jobs.get(JobId(self.head(line)[2]))
            if cell is not None and cell.life.ready_at is not None:
                queue = line.job_class.queue.queue.name
                oldest[queue] = min(cell.life.ready_at, oldest.get(queue, cell.life.ready_at))
        return oldest

    def stands(self, entry: LineKey, line: Line) -> bool:
        """Whether an entry of the line's row still means something."""
        if entry[2][0] == ON_SHELF:
            lane = self.numbered.get(int(entry[2][1:]))
            return lane is not None and lane.mark == entry
        cell = self._jobs.get(entry[2])
        return (
            cell is not None
            and cell.class_index == line.job_class.index
            and cell.line_number == line.number
            and cell.place == entry[0]
        )

    def first(self, mask: int) -> Line | None:
        """The line among these classes whose head goes first."""
        mask &= self.ready
        return self.order.first(mask, self.head) if mask else None

    def shortest(self, line: Line) -> Short | None:
        """The job in memory that is expected to run about the shortest, and how long."""
        about = self.order.about
        if not line.is_mixed:
            head = self.head(line)
            return None if is_mark(head) else (about(line.estimate), head, line.estimate)
        if line.short is None:
            line.short = [
                (about(self._jobs[entry[2]].estimate), entry)
                for entry in line.row
                if not is_mark(entry) and self.stands(entry, line)
            ]
            heapify(line.short)
        while line.short and not self.stands(line.short[0][1], line):
            heappop(line.short)
        if not line.short:
            return None
        length, key = line.short[0]
        return length, key, self._jobs[key[2]].estimate

    def line_of_job(self, cell: JobCell) -> Line | None:
        """The line a job stands in."""
        return None if cell.class_index == NO_CLASS else self._lines[cell.line_number]

    def line_of_lane(self, lane: Lane) -> Line:
        """The line that the jobs of a lane stand in."""
        return self._marked_line(lane, 0)

    # Classes

    def _class_of(self, queue: QueueCell, needs: Needs) -> JobClass:
        key = (queue.queue.name, needs)
        job_class = self._by_key.get(key)
        if job_class is None:
            job_class = self._make(queue, needs)
            self._by_key[key] = job_class
        return job_class

    def _make(self, queue: QueueCell, needs: Needs) -> JobClass:
        if len(self.classes) < self._limits.classes_kept or not self._empty:
            job_class = JobClass(len(self.classes), queue, needs)
            self.classes.append(job_class)
        else:
            index = next(iter(self._empty))
            del self._empty[index]
            old = self.classes[index]
            old.queue.class_mask &= ~old.bit
            del self._by_key[(old.queue.queue.name, old.needs)]
            job_class = JobClass(index, queue, needs)
            self.classes[index] = job_class
            self.reused += 1
        self.made += 1
        queue.class_mask |= job_class.bit
        self.fresh |= job_class.bit
        self._empty[job_class.index] = None
        return job_class
