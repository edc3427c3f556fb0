"""Search for pages of jobs and executions in PostgreSQL: which indexes are walked, what is checked.

Every index of a filter is sorted by id too, so its matches can be walked newest first. A search
walks the rarest filter, and the second rarest beside it if that is cheaper than looking up each
row. Each statement walks a given number of entries of a range of ids (days) and returns how far it
came. All statements of a page see one snapshot. A search that has done as much work as its query
allows ends.

Why: docs/decisions/0025-pages-of-lists-may-end-early.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import msgspec

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import ExecutionState, Instant, JobState
from rota.store.limits import (
    LOOKUP_COST,
    ROW_COST,
    SEARCH_FIRST_UNITS,
    SEARCH_SAMPLE,
    SEARCH_STEP_UNITS,
)
from rota.store.postgres.connect import Connection
from rota.store.postgres.partitions import DAY_MS
from rota.store.queries import ExecutionQuery, JobQuery, Page, id_at
from rota.store.rows import Row

Branch: TypeAlias = tuple[str, tuple[str, ...]]
"""(table, states); (): all states that it has."""

STATE = "state"


class Statement(msgspec.Struct):
    """SQL with its arguments."""

    sql: str
    args: list[Any]


class IdRange(msgspec.Struct, frozen=True):
    """Range of ids from `low` on, and before `high`; None: no bound."""

    low: str | None = None
    high: str | None = None


class Term(msgspec.Struct, frozen=True):
    """Filter of a search; `{}` in the clause stand for its values."""

    clause: str
    values: tuple[Any, ...] = ()
    column: str = ""
    """The column that it checks; a label has none."""
    beside: tuple[str, ...] | None = None
    """Other columns of its index; None: it has no index."""

    @property
    def is_label(self) -> bool:
        """Whether it is a label, which is in a table of its own."""
        return not self.column


EVERY = Term("true", column="id", beside=())
"""No filter: the table by its ids."""


class FilterSearch(msgspec.Struct, frozen=True):
    """Search for matches of all terms in any of the branches."""

    branches: tuple[Branch, ...]
    terms: tuple[Term, ...]
    everywhere: bool
    """Whether the branches are all the tables that there are."""

    @property
    def walkable(self) -> tuple[Term, ...]:
        """Terms whose index can be walked."""
        indexed = tuple(term for term in self.terms if term.beside is not None)
        # Live jobs may be fewer than the matches of a filter, and labels do not say which jobs
        # live.
        is_live = not any(table.endswith("_done") for table, _ in self.branches)
        only_labels = not self.everywhere and all(term.is_label for term in self.terms)
        return indexed if indexed and not (is_live or only_labels) else (*indexed, EVERY)

    @property
    def is_plain(self) -> bool:
        """Whether one index has exactly the matches."""
        if any(term.is_label for term in self.terms) and not self.everywhere:
            return False
        return len(self.terms) <= 1 and all(term.beside is not None for term in self.terms)


class Route(msgspec.Struct, frozen=True):
    """Route of a search: the one or two filters to walk, and what an entry costs in index
    entries."""

    walked: tuple[Term, ...]
    cost: int
    is_rare: bool = False
    """Whether the range has fewer entries of it than a sample."""

    def entries(self, units: int) -> int:
        """Returns how many entries to walk for so many units of work; of a rare filter all."""
        return SEARCH_SAMPLE if self.is_rare else max(1, units // self.cost)


class SearchStep(msgspec.Struct, frozen=True):
    """Step of a search: how many of the newest entries in a range to walk, and the matches
    wanted."""

    route: Route
    span: IdRange
    entries: int
    limit: int


class StatementArgs:
    """Arguments of one statement, each once."""

    def __init__(self) -> None:
        self.given: dict[tuple[type, Any], str] = {}

    def place(self, value: Any) -> str:
        """Adds an argument; returns its placeholder."""
        return self.given.setdefault((type(value), value), f"${len(self.given) + 1}")

    def clause(self, term: Term, row: str) -> str:
        """Returns a filter as a condition on this row."""
        return term.clause.format(*map(self.place, term.values), row=row)

    def within(self, column: str, span: IdRange) -> list[str]:
        """Returns conditions for ids of the range."""
        low = [] if span.low is None else [f"{column} >= {self.place(span.low)}"]
        return low if span.high is None else [*low, f"{column} < {self.place(span.high)}"]

    def statement(self, sql: str) -> Statement:
        """Returns the statement with its arguments."""
        return Statement(sql, [value for _, value in self.given])


def label_term(key: str, value: str) -> Term:
    """Returns the filter for jobs with this label."""
    return Term("{row}.key = {} AND {row}.value = {}", (key, value), beside=())


def plain(search: FilterSearch, span: IdRange, limit: int, *more: str) -> Statement:
    """Returns a statement for ids of matches, newest first, by a scan of each branch."""
    args = StatementArgs()
    labels = [term for term in search.terms if term.is_label]
    if search.is_plain and labels:
        return args.statement(_walk(args, search, labels[0], span, limit))
    selects = []
    for branch, state in _split(search.branches):
        own = [] if state is None else [f"j.state = '{state}'"]
        columns = [term for term in _columns(search.terms) if term.column != STATE]
        asked = _checks(args, columns, branch, "j")
        has = [_has_label(args, term, "j.id", span) for term in labels]
        where = _where(*asked, *own, *has, *args.within("j.id", span), *more)
        selects.append(f"SELECT j.id FROM rota.{branch[0]} j{where} {_newest('j.id', limit)}")
    return args.statement(_merged(selects, limit))


def reaches(search: FilterSearch, terms: Sequence[Term], span: IdRange, entries: int) -> Statement:
    """Returns a statement for one row: of each term the oldest of its newest entries, and their
    number."""
    args = StatementArgs()
    each = [
        f"(SELECT min(id) AS a{n}, count(*) AS b{n}"
        f" FROM ({_walk(args, search, term, span, entries)}) w) r{n}"
        for n, term in enumerate(terms)
    ]
    return args.statement(f"SELECT * FROM {', '.join(each)}")


def matches(search: FilterSearch, step: SearchStep) -> Statement:
    """Returns a statement for rows of an id and null: matches, newest first; then one row for each
    walk.

    That row has the oldest of its entries, and their number. Matches older than one of these are
    not complete.
    """
    args, walked = StatementArgs(), step.route.walked
    alone = len(walked) == 1 and not walked[0].is_label
    found = _filtered(args, search, step) if alone else _joined(args, search, step)
    ends = [] if step.route.is_rare else [
        f"SELECT min(id), count(*) FROM ({_walk(args, search, term, step.span, step.entries)}) w"
        for term in walked
    ]  # fmt: skip
    rows = f"SELECT id, NULL::bigint FROM ({found}) m"
    return args.statement(" UNION ALL ".join([rows, *ends]))


def choose(search: FilterSearch, reached: Sequence[str | None], high: Instant) -> Route:
    """Chooses a route by how far back the same number of entries reaches; None: there are fewer."""
    # The filter that reaches furthest back is the rarest; of several rare ones, the first.
    order = sorted(zip(reached, search.walkable, strict=True), key=lambda one: one[0] or "")
    far, first = order[0]
    each = cost(search, first)
    if far is None or len(order) == 1 or each == 1:
        return Route((first,), each, is_rare=far is None)
    near, second = order[1]
    apart = None if near is None else _times_apart(far, near, high)
    # Walking both costs as much as they have entries in the same time.
    if apart is None or 1 + apart >= each:
        return Route((first,), each)
    # Matches of both may still have to be looked up.
    walked = (first, second)
    return Route(walked, 2 if all(term in walked for term in search.terms) else LOOKUP_COST // 2)


def cost(search: FilterSearch, walked: Term) -> int:
    """Returns the cost of an entry, in entries for which the index is enough."""
    rest = [term for term in search.terms if term is not walked]
    alone = search.everywhere and not rest
    if (walked.is_label and not alone) or any(term.is_label for term in rest):
        return LOOKUP_COST
    beside = walked.beside or ()
    return 1 if all(term.column in beside for term in rest) else ROW_COST


def time_in(one_id: str) -> Instant | None:
    """Returns the milliseconds in an id; None: it is not a UUIDv7."""
    try:
        return int(one_id[:8] + one_id[9:13], 16)
    except ValueError:
        return None


def _times_apart(far: str, near: str, high: Instant) -> float | None:
    """Returns how many times as frequent the second one is, by the times in the ids."""
    start, middle = time_in(far), time_in(near)
    if start is None or middle is None or middle >= high:
        return None
    return (high - start) / (high - middle)


def _walk(args: StatementArgs, search: FilterSearch, term: Term, span: IdRange, limit: int) -> str:
    """Returns SQL for the ids of one term's entries, newest first."""
    if term.is_label:
        where = _where(args.clause(term, "l"), *args.within("l.job_id", span))
        return f"SELECT l.job_id AS id FROM rota.labels l{where} {_newest('l.job_id', limit)}"
    return _merged(
        [
            f"SELECT j.id FROM {_source(args, term, one, span)} {_newest('j.id', limit)}"
            for one in _parts(search, term)
        ],
        limit,
    )


def _filtered(args: StatementArgs, search: FilterSearch, step: SearchStep) -> str:
    """Returns SQL that walks one term, and checks the others on the same rows.

    The inner limit keeps the planner to the index that was chosen.
    """
    walked, span = step.route.walked[0], step.span
    rest = [term for term in search.terms if term is not walked]
    selects = []
    for part in _parts(search, walked):
        newest = f"SELECT j.* FROM {_source(args, walked, part, span)}"
        asked = _checks(args, _columns(rest), part[0], "e")
        has = [_has_label(args, term, "e.id", span) for term in rest if term.is_label]
        selects.append(
            f"SELECT e.id FROM ({newest} {_newest('j.id', step.entries)}) e"
            f"{_where(*asked, *has)} {_newest('e.id', step.limit)}"
        )
    return _merged(selects, step.limit)


def _joined(args: StatementArgs, search: FilterSearch, step: SearchStep) -> str:
    """Returns SQL for ids among the entries of all walked terms; other terms are looked up."""
    walked, span = step.route.walked, step.span
    rest = [term for term in search.terms if term not in walked]
    walks = [_walk(args, search, term, span, step.entries) for term in walked]
    found = " JOIN ".join(f"({walk}) w{n}" for n, walk in enumerate(walks))
    if len(walks) > 1:
        found += " ON w1.id = w0.id"
    if _columns(rest) or not (search.everywhere or _columns(walked)):
        found += f" CROSS JOIN LATERAL ({_looked_up(args, search, rest, span)}) j"
    has = [_has_label(args, term, "w0.id", span) for term in rest if term.is_label]
    return f"SELECT w0.id FROM {found}{_where(*has)} {_newest('w0.id', step.limit)}"


def _looked_up(
    args: StatementArgs, search: FilterSearch, rest: Sequence[Term], span: IdRange
) -> str:
    """Returns SQL for the row of an id that was found, if it matches."""
    each = []
    for branch in search.branches:
        asked = _checks(args, _columns(rest), branch, "j")
        where = _where("j.id = w0.id", *asked, *args.within("j.id", span))
        each.append(f"SELECT FROM rota.{branch[0]} j{where}")
    return f"{' UNION ALL '.join(each)} LIMIT 1"


def _has_label(args: StatementArgs, term: Term, one_id: str, span: IdRange) -> str:
    # Without the offset the planner might join with all jobs that have the label.
    where = _where(args.clause(term, "o"), f"o.job_id = {one_id}", *args.within("o.job_id", span))
    return f"EXISTS (SELECT FROM rota.labels o{where} OFFSET 0)"


def _checks(args: StatementArgs, terms: Sequence[Term], branch: Branch, row: str) -> list[str]:
    listed = ", ".join(f"'{state}'" for state in branch[1])
    in_state = f"{row}.state IN ({listed})" if listed else ""
    return [in_state if term.column == STATE else args.clause(term, row) for term in terms]


def _columns(terms: Sequence[Term]) -> list[Term]:
    return [term for term in terms if not term.is_label]


def _parts(search: FilterSearch, term: Term) -> Iterator[tuple[Branch, str | None]]:
    if term.column == STATE:
        yield from _split(search.branches)
    else:
        yield from ((branch, None) for branch in search.branches)


def _split(branches: Sequence[Branch]) -> Iterator[tuple[Branch, str | None]]:
    """Yields one branch per state, so that each is sorted; an IN would have to sort its matches."""
    for branch in branches:
        for state in branch[1] or (None,):
            yield branch, state


def _source(args: StatementArgs, term: Term, part: tuple[Branch, str | None], span: IdRange) -> str:
    (table, _), state = part
    # The states are constants, written out so that the planner can use the partial indexes.
    own = args.clause(term, "j") if state is None else f"j.state = '{state}'"
    return f"rota.{table} j{_where(own, *args.within('j.id', span))}"


def _where(*clauses: str) -> str:
    asked = " AND ".join(clause for clause in clauses if clause and clause != "true")
    return f" WHERE {asked}" if asked else ""


def _newest(by: str, limit: int) -> str:
    return f"ORDER BY {by} DESC LIMIT {limit:d}"


def _merged(selects: Sequence[str], limit: int) -> str:
    if len(selects) == 1:
        return selects[0]
    each = " UNION ALL ".join(f"({select})" for select in selects)
    return f"SELECT id FROM ({each}) p {_newest('id', limit)}"


ID_SLACK_MS = 60_000
"""How far the time in an id may be from its job's creation; other jobs have an index of their own
(`jobs_done_astray`)."""
_SPAN_DAYS_MAX = 1_000
"""Older ids than that are searched in one range."""
_ASTRAY = "j.id NOT BETWEEN rota.id_at(j.created_at - 60000) AND rota.id_at(j.created_at + 60001)"
"""Written exactly as in the indexes, so that the planner recognises it."""
_TABLES = ("jobs_live", "jobs_done", "jobs_shelved")
_BESIDE = {
    "name": (STATE, "queue", "tenant"),
    STATE: ("queue", "tenant", "name"),
    "tenant": (STATE, "queue"),
    "queue": (STATE,),
}
"""Columns of the indexes of finished jobs; of equally rare filters the first is used."""
_UNINDEXED = (JobState.QUEUED, JobState.SUCCEEDED)
"""Most live jobs have the one state, most finished jobs the other: the indexes leave them out."""
_BETWEEN = "AND id BETWEEN $2 AND $3"
"""Adds no condition, but lets the database leave out the other days before it plans."""


def job_id_range(query: JobQuery) -> IdRange:
    """Returns the range of all matches, except those whose ids have another time."""
    low, high = query.after, query.before
    if query.created_after is not None:
        low = max(low or "", id_at(query.created_after - ID_SLACK_MS))
    if query.created_before is not None:
        bound = id_at(query.created_before + ID_SLACK_MS + 1)
        high = bound if high is None else min(high, bound)
    return IdRange(low, high)


def id_ranges(whole: IdRange, now: Instant) -> Iterator[IdRange]:
    """Yields the whole in ever longer ranges, newest first: a day or two, then twice as much."""
    newest = now // DAY_MS
    if whole.high is not None:
        instant = time_in(whole.high)
        newest = newest if instant is None else min(newest, instant // DAY_MS)
    high, days = whole.high, 1
    for back in count():
        low = id_at((newest - days) * DAY_MS)
        if whole.low is not None and low <= whole.low:
            yield IdRange(whole.low, high)
            return
        if days > _SPAN_DAYS_MAX or newest <= days:
            yield IdRange(None, high)
            return
        yield IdRange(low, high)
        high, days = low, days + (2 << back)


def job_search(query: JobQuery) -> FilterSearch:
    """Returns the search of a list of jobs."""
    branches = _branches("jobs_live", query.states, JobState, is_final=False)
    if not query.states or JobState.QUEUED in query.states:
        branches.append(("jobs_shelved", ()))
    branches += _branches("jobs_done", query.states, JobState, is_final=True)
    terms = [label_term(key, value) for key, value in query.labels]
    for column, beside in _BESIDE.items():
        if column == STATE:
            terms += _state_terms(branches, beside)
        elif (value := getattr(query, column)) is not None:
            terms.append(Term(f"{{row}}.{column} = {{}}", (value,), column, beside))
    terms += _other_terms(query)
    return FilterSearch(tuple(branches), tuple(terms), everywhere=not query.states)


def execution_search(query: ExecutionQuery) -> FilterSearch:
    """Returns the search of a list of executions."""
    branches = _branches("executions_live", query.states, ExecutionState, is_final=False)
    branches += _branches("executions_done", query.states, ExecutionState, is_final=True)
    terms = [
        Term(f"{{row}}.{column} = {{}}", (value,), column, ())
        for column, value in (("job_id", query.job_id), ("worker_id", query.worker_id))
        if value is not None
    ]
    terms += _state_terms(branches, ())
    return FilterSearch(tuple(branches), tuple(terms), everywhere=not query.states)


def _other_terms(query: JobQuery) -> Iterator[Term]:
    if query.priority is not None:
        # Written out, as the states are: the index has all but the default priority.
        beside = () if query.priority != 0 else None
        yield Term(f"{{row}}.priority = {query.priority:d}", (), "priority", beside)
    if query.not_priority is not None:
        yield Term(f"{{row}}.priority <> {query.not_priority:d}", (), "priority")
    if query.created_after is not None:
        yield Term("{row}.created_at > {}", (query.created_after,), "created_at")
    if query.created_before is not None:
        yield Term("{row}.created_at < {}", (query.created_before,), "created_at")


def _state_terms(branches: Sequence[Branch], beside: tuple[str, ...]) -> list[Term]:
    """Returns no term if each table has only states that are asked for."""
    if not any(states for _, states in branches):
        return []
    indexed = all(states and not set(states) & set(_UNINDEXED) for _, states in branches)
    return [Term("", (), STATE, beside if indexed else None)]


def _branches(
    table: str,
    states: Sequence[JobState | ExecutionState],
    kinds: type[JobState] | type[ExecutionState],
    *,
    is_final: bool,
) -> list[Branch]:
    """Returns the table with those of the states that it can have; none: it has no matches."""
    final: Any = JOB_FINAL if kinds is JobState else EXECUTION_FINAL
    own = [kind for kind in kinds if (kind in final) is is_final]
    asked = [state for state in dict.fromkeys(states) if state in own]
    if not states or len(asked) == len(own):
        return [(table, ())]
    return [(table, tuple(state.value for state in asked))] if asked else []


def is_any_astray(query: JobQuery) -> Statement:
    """Returns a statement for whether jobs of the time that was asked for have ids of another time.

    Mostly there are none. The text is always the same, so that the database plans it once.
    """
    each = " OR ".join(
        f"EXISTS (SELECT FROM rota.{table} j"
        f" WHERE {_ASTRAY} AND j.created_at > $1 AND j.created_at < $2)"
        for table in _TABLES
    )
    after = -1 if query.created_after is None else query.created_after
    before = 1 << 62 if query.created_before is None else query.created_before
    return Statement(f"SELECT {each}", [after, before])


def astray_jobs(query: JobQuery, search: FilterSearch, limit: int) -> Statement:
    """Returns a statement for matches whose ids have another time."""
    return plain(search, IdRange(query.after, query.before), limit, _ASTRAY)


def job_bodies(job_ids: Sequence[str], columns: Sequence[str]) -> Statement:
    """Returns a statement for rows of id and `columns`; each id is looked up in its own day
    only."""
    each = " UNION ALL ".join(
        f"SELECT {_of(table, columns)} FROM rota.{table} WHERE id = v.id {_BETWEEN}"
        for table in _TABLES
    )
    return _each_of(job_ids, each)


def execution_bodies(execution_ids: Sequence[str]) -> Statement:
    """Returns a statement for rows of id, body."""
    each = " UNION ALL ".join(
        f"SELECT body FROM rota.{table} WHERE id = v.id {_BETWEEN}"
        for table in ("executions_live", "executions_done")
    )
    return _each_of(execution_ids, each)


def _each_of(ids: Sequence[str], each: str) -> Statement:
    # The limit keeps it a lookup by id: for a thousand ids the planner would read whole days.
    looked_up = f"CROSS JOIN LATERAL ({each} LIMIT 1) b"
    sql = f"SELECT v.id, b.* FROM unnest($1::text[]) AS v (id) {looked_up}"
    return Statement(sql, [list(dict.fromkeys(ids)), min(ids, default=""), max(ids, default="")])


def _of(table: str, columns: Sequence[str]) -> str:
    # A spilled job is queued; its table has no column for the state.
    is_spilled = table == "jobs_shelved"
    return ", ".join("'queued'" if is_spilled and one == "state" else one for one in columns)


async def find_jobs(connection: Connection, query: JobQuery, now: Instant) -> Page[Row]:
    """Returns rows of id, life, spec, newest first; `now` only says where to look first."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        ids = await _job_ids(connection, query, now)
        bodies = job_bodies(ids, ("life", "spec"))
        return Page(await _in_order(connection, bodies) if ids else (), ids.rest)


async def find_job_ids(connection: Connection, query: JobQuery, now: Instant) -> Page[str]:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return await _job_ids(connection, query, now)


async def find_executions(connection: Connection, query: ExecutionQuery, now: Instant) -> Page[Row]:
    """Returns rows of id, body, newest first."""
    whole = IdRange(None, query.before)
    # Those of one job are few: one search of all days costs less than several.
    parts = iter((whole,)) if query.job_id is not None else id_ranges(whole, now)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        page_search = _PageSearch(connection, execution_search(query), query.limit, query.look, now)
        ids = await page_search.run(parts)
        return Page(await _in_order(connection, execution_bodies(ids)) if ids else (), ids.rest)


async def _job_ids(connection: Connection, query: JobQuery, now: Instant) -> Page[str]:
    search = job_search(query)
    page_search = _PageSearch(connection, search, query.limit, query.look, now)
    if query.created_after is not None or query.created_before is not None:
        probe = is_any_astray(query)
        if await connection.fetchval(probe.sql, *probe.args):
            await page_search.take(astray_jobs(query, search, query.limit))
    return await page_search.run(id_ranges(job_id_range(query), now))


class _PageSearch:
    def __init__(
        self,
        connection: Connection,
        search: FilterSearch,
        limit: int,
        look: int | None,
        now: Instant,
    ) -> None:
        self._connection = connection
        self._search = search
        self._limit = limit
        self._work_max = look
        self._now = now
        self._found: dict[str, None] = {}
        self._spent = 0
        self._step = min(max(SEARCH_FIRST_UNITS, limit), SEARCH_STEP_UNITS)
        self._route: Route | None = None

    async def take(self, statement: Statement) -> None:
        """Adds the ids that a statement finds."""
        rows = await self._connection.fetch(statement.sql, *statement.args)
        self._found |= {row[0]: None for row in rows}

    async def run(self, parts: Iterator[IdRange]) -> Page[str]:
        """Searches until no older match can belong to the page, or the work is enough."""
        for span in parts:
            if self._search.is_plain:
                await self.take(plain(self._search, span, self._limit))
            elif (rest := await self._go_through(span)) is not None:
                return Page(self._newest(rest), rest)
            if self._is_full(span.low):
                break
        return Page(self._newest(""))

    async def _go_through(self, span: IdRange) -> str | None:
        """Searches a range step by step; returns where it ended, if not at the range's end."""
        if self._route is None or self._route.is_rare:
            self._route = await self._choose(span)
        route, high = self._route, span.high
        while route is not None:
            step = SearchStep(
                route, IdRange(span.low, high), route.entries(self._units()), self._limit
            )
            low = await self._walk(step)
            if low is None or self._is_full(low):
                return None
            if self._work_max is not None and self._spent >= self._work_max:
                return low
            high = low
        return None

    async def _choose(self, span: IdRange) -> Route | None:
        """Chooses a route. None: one of the filters has no entries here."""
        walkable = self._search.walkable
        if len(walkable) == 1:
            return Route(walkable, cost(self._search, walkable[0]))
        asked = reaches(self._search, walkable, span, SEARCH_SAMPLE)
        (found,) = await self._connection.fetch(asked.sql, *asked.args)
        oldest, counts = tuple(found)[::2], tuple(found)[1::2]
        self._spent += sum(counts)
        if not all(counts):
            return None
        reached = [
            one if entries == SEARCH_SAMPLE else None
            for one, entries in zip(oldest, counts, strict=True)
        ]
        instant = None if span.high is None else time_in(span.high)
        return choose(self._search, reached, self._now if instant is None else instant)

    async def _walk(self, step: SearchStep) -> str | None:
        """Adds matches; returns down to which id they are complete. None: to the range's end."""
        asked = matches(self._search, step)
        rows = await self._connection.fetch(asked.sql, *asked.args)
        self._found |= {one: None for one, entries in rows if entries is None}
        ends = [(oldest, entries) for oldest, entries in rows if entries is not None]
        self._spent += step.route.cost * max((entries for _, entries in ends), default=0)
        return max((one for one, entries in ends if entries == step.entries), default=None)

    def _units(self) -> int:
        """Returns the work of the next step: small steps first, for most pages are full soon."""
        step = self._step
        self._step = min(4 * step, SEARCH_STEP_UNITS)
        return step if self._work_max is None else max(1, min(step, self._work_max))

    def _is_full(self, low: str | None) -> bool:
        return low is not None and sum(one >= low for one in self._found) >= self._limit

    def _newest(self, low: str) -> list[str]:
        return sorted((one for one in self._found if one >= low), reverse=True)[: self._limit]


async def _in_order(connection: Connection, bodies: Statement) -> list[Row]:
    found: Sequence[Any] = await connection.fetch(bodies.sql, *bodies.args)
    return sorted((tuple(row) for row in found), key=_first, reverse=True)


def _first(row: Row) -> Any:
    return row[0]
