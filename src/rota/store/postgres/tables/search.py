"""How a list with several filters is searched: which indexes are walked, and what is checked.

Every indexed filter is sorted by id too, so its matches can be walked newest first. A search walks
the rarest one. Where the other filters are in the same index, passing over what does not match
costs little. Where they are not, each entry would have to be looked up: then the second rarest is
walked beside it, and only ids that are in both are looked at, unless that one is so frequent that
looking up costs less. A statement walks a given number of entries and says how far it came, so that
none takes long, whatever the filters have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.model import Instant
from rota.store.limits import LOOKUP_COST, ROW_COST, SEARCH_SAMPLE

Branch: TypeAlias = tuple[str, tuple[str, ...]]
"""(table, states); (): all there are in it."""

STATE = "state"


class Statement(msgspec.Struct):
    """SQL with its arguments."""

    sql: str
    args: list[Any]


class IdRange(msgspec.Struct, frozen=True):
    """Ids from `low` on, and before `high`; None: without a bound."""

    low: str | None = None
    high: str | None = None


class Term(msgspec.Struct, frozen=True):
    """One filter; `{}` in the clause stand for its values."""

    clause: str
    values: tuple[Any, ...] = ()
    column: str = ""
    """What it asks of a row; of a label there is none."""
    beside: tuple[str, ...] | None = None
    """What else its index holds; None: it has none."""

    @property
    def is_label(self) -> bool:
        """Whether it is in a table of its own."""
        return not self.column


EVERY = Term("true", column="id", beside=())
"""No filter: the table by its ids."""


class FilterSearch(msgspec.Struct, frozen=True):
    """What is looked for: matches of all terms in any of the branches."""

    branches: tuple[Branch, ...]
    terms: tuple[Term, ...]
    everywhere: bool
    """Whether there is no other table that it could be in."""

    @property
    def walkable(self) -> tuple[Term, ...]:
        """What can be walked."""
        indexed = tuple(term for term in self.terms if term.beside is not None)
        # All that is live may be fewer than those of a filter; and labels do not tell what is.
        is_live = not any(table.endswith("_done") for table, _ in self.branches)
        only_labels = not self.everywhere and all(term.is_label for term in self.terms)
        return indexed if indexed and not (is_live or only_labels) else (*indexed, EVERY)

    @property
    def is_plain(self) -> bool:
        """Whether one index has the matches and nothing else."""
        if any(term.is_label for term in self.terms) and not self.everywhere:
            return False
        return len(self.terms) <= 1 and all(term.beside is not None for term in self.terms)


class Route(msgspec.Struct, frozen=True):
    """Which one or two filters are walked, and what an entry costs, in index entries."""

    walked: tuple[Term, ...]
    cost: int
    is_rare: bool = False
    """Whether the span has fewer entries of it than a sample."""

    def entries(self, units: int) -> int:
        """How many of each to walk for so many units of work; of a rare one all there are."""
        return SEARCH_SAMPLE if self.is_rare else max(1, units // self.cost)


class SearchStep(msgspec.Struct, frozen=True):
    """How many of the newest entries in a span are walked, and how many matches are enough."""

    route: Route
    span: IdRange
    entries: int
    limit: int


class StatementArgs:
    """The arguments of one statement, each once."""

    def __init__(self) -> None:
        self.given: dict[tuple[type, Any], str] = {}

    def place(self, value: Any) -> str:
        """Where it stands."""
        return self.given.setdefault((type(value), value), f"${len(self.given) + 1}")

    def clause(self, term: Term, row: str) -> str:
        """A filter, about this row."""
        return term.clause.format(*map(self.place, term.values), row=row)

    def within(self, column: str, span: IdRange) -> list[str]:
        """Only ids of the span."""
        low = [] if span.low is None else [f"{column} >= {self.place(span.low)}"]
        return low if span.high is None else [*low, f"{column} < {self.place(span.high)}"]

    def statement(self, sql: str) -> Statement:
        """With what was placed."""
        return Statement(sql, [value for _, value in self.given])


def label_term(key: str, value: str) -> Term:
    """Jobs that have the label."""
    return Term("{row}.key = {} AND {row}.value = {}", (key, value), beside=())


def plain(search: FilterSearch, span: IdRange, limit: int, *more: str) -> Statement:
    """Ids of matches, newest first, by a scan of each branch."""
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
    """One row: of each term the oldest of its newest entries, and how many of them there are."""
    args = StatementArgs()
    each = [
        f"(SELECT min(id) AS a{n}, count(*) AS b{n}"
        f" FROM ({_walk(args, search, term, span, entries)}) w) r{n}"
        for n, term in enumerate(terms)
    ]
    return args.statement(f"SELECT * FROM {', '.join(each)}")


def matches(search: FilterSearch, step: SearchStep) -> Statement:
    """Rows of an id and null: matches, newest first; then one of each that was walked.

    That one has the oldest of its entries, and how many they are. Matches that are older than one
    of these are not all there are.
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
    """By how far back the same number of entries reaches; None: the span has fewer of them."""
    # The one that reaches furthest has the fewest; of two that have few, the first.
    order = sorted(zip(reached, search.walkable, strict=True), key=lambda one: one[0] or "")
    far, first = order[0]
    each = cost(search, first)
    if far is None or len(order) == 1 or each == 1:
        return Route((first,), each, is_rare=far is None)
    near, second = order[1]
    apart = None if near is None else _times_apart(far, near, high)
    # Walking both costs what they have in the same time.
    if apart is None or 1 + apart >= each:
        return Route((first,), each)
    # What is in both may still have to be looked up.
    walked = (first, second)
    return Route(walked, 2 if all(term in walked for term in search.terms) else LOOKUP_COST // 2)


def cost(search: FilterSearch, walked: Term) -> int:
    """Of walking it, each entry compared to one that its index is enough for."""
    rest = [term for term in search.terms if term is not walked]
    alone = search.everywhere and not rest
    if (walked.is_label and not alone) or any(term.is_label for term in rest):
        return LOOKUP_COST
    beside = walked.beside or ()
    return 1 if all(term.column in beside for term in rest) else ROW_COST


def time_in(one_id: str) -> Instant | None:
    """The milliseconds in an id; None: it is none of ours."""
    try:
        return int(one_id[:8] + one_id[9:13], 16)
    except ValueError:
        return None


def _times_apart(far: str, near: str, high: Instant) -> float | None:
    """How many times as frequent the second one is, by the times in the ids."""
    start, middle = time_in(far), time_in(near)
    if start is None or middle is None or middle >= high:
        return None
    return (high - start) / (high - middle)


def _walk(args: StatementArgs, search: FilterSearch, term: Term, span: IdRange, limit: int) -> str:
    """Ids of one term's entries, newest first."""
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
    """The entries of the one term that is walked, the others asked of the same rows.

    The limit inside keeps the planner to the index that was chosen.
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
    """What is among the entries of all that are walked; the others are looked up."""
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
    """The row of an id that was found, if it matches."""
    each = []
    for branch in search.branches:
        asked = _checks(args, _columns(rest), branch, "j")
        where = _where("j.id = w0.id", *asked, *args.within("j.id", span))
        each.append(f"SELECT FROM rota.{branch[0]} j{where}")
    return f"{' UNION ALL '.join(each)} LIMIT 1"


def _has_label(args: StatementArgs, term: Term, one_id: str, span: IdRange) -> str:
    # Without the offset it might become a join with all that have the label.
    where = _where(args.clause(term, "o"), f"o.job_id = {one_id}", *args.within("o.job_id", span))
    return f"EXISTS (SELECT FROM rota.labels o{where} OFFSET 0)"


def _checks(args: StatementArgs, terms: Sequence[Term], branch: Branch, row: str) -> list[str]:
    words = ", ".join(f"'{state}'" for state in branch[1])
    in_state = f"{row}.state IN ({words})" if words else ""
    return [in_state if term.column == STATE else args.clause(term, row) for term in terms]


def _columns(terms: Sequence[Term]) -> list[Term]:
    return [term for term in terms if not term.is_label]


def _parts(search: FilterSearch, term: Term) -> Iterator[tuple[Branch, str | None]]:
    if term.column == STATE:
        yield from _split(search.branches)
    else:
        yield from ((branch, None) for branch in search.branches)


def _split(branches: Sequence[Branch]) -> Iterator[tuple[Branch, str | None]]:
    """One branch a state, so that each is sorted; an IN would have to sort its matches."""
    for branch in branches:
        for state in branch[1] or (None,):
            yield branch, state


def _source(args: StatementArgs, term: Term, part: tuple[Branch, str | None], span: IdRange) -> str:
    (table, _), state = part
    # The states are ours, and written out so that the planner can use the partial indexes.
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
