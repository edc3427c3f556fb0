"""Random stories as plain data: commands to a scheduler, and time that passes between them.

Imports nothing of Rota, so that one script can be played against the core of any commit. Records
stand in it by position, as they are stored. What a script cannot know before it is played (which
executions run) it names by number; the player resolves it.
"""

from __future__ import annotations

import json
import random
from typing import Any, TypeAlias

Command: TypeAlias = dict[str, Any]
Turn: TypeAlias = dict[str, Any]

NOON = 1_800_000_000_000
SECOND = 1_000
HOUR = 3_600 * SECOND
GIB = 1 << 30
TURNS = 90
POLICIES = ("default", "strict", "fcfs", "easy", "conservative", "easy-sjf")
QUEUES = ("default", "q0", "q1", "q2")
TENANTS = ("default", "a", "b")
CAPABILITIES = ("cap-0", "cap-1", "cap-2")
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


class Story:
    """Writes one story; each kind of command has a method of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"story {seed}")
        self.jobs = self.others = 0
        self.now = NOON
        self.keyed: list[Command] = []
        self.workers = [f"w{number}" for number in range(self.rng.randrange(2, 8))]

    def write(self) -> dict[str, Any]:
        """Writes the whole script."""
        rng = self.rng
        spill = rng.choice(
            (None, {"jobs": 20, "line": 3, "piece": 4}, {"jobs": 60, "line": 8, "piece": 9})
        )
        begin = [self.register(name) for name in self.workers]
        turns = [{"ms": 0, "do": begin}, *(self.turn() for _ in range(TURNS))]
        return {"policy": rng.choice(POLICIES), "spill": spill, "start": NOON, "turns": turns}

    def turn(self) -> Turn:
        """Writes one turn, a time without commands, or a restart."""
        rng = self.rng
        ms = rng.choice((0, 1, 50, 900, 4_000))
        self.now += ms
        roll = rng.random()
        if roll < 0.06:
            long = rng.choice(
                (SECOND, 20 * SECOND, 20 * SECOND, 20 * SECOND, 90 * SECOND, HOUR // 4)
            )
            self.now += long
            return {"ms": ms, "advance": long}
        if roll < 0.08:
            return {"ms": ms, "restart": True}
        do: list[Command] = []
        if rng.random() < 0.02:
            by = rng.choice((-HOUR, HOUR, 5 * SECOND))
            self.now += by
            return {"ms": ms, "set_clock": by, "do": [self._cmd("clock_jump", by=by)]}
        if rng.random() < 0.02:
            do.append(self._cmd("absence", by=rng.choice((SECOND, 10 * SECOND))))
        do += [self.command() for _ in range(rng.randrange(1, 6))]
        return {"ms": ms, "do": do, "why": rng.randrange(1_000)}

    def command(self) -> Command:
        """Writes any command; common ones more often."""
        everyday = (self.submit, self.submit, self.poll, self.poll, self.poll, self.complete)
        rare = (self.batch, self.array, self.gang, self.repeat, self.reject, self.update)
        acts = (self.cancel, self.retry, self.delete, self.execute, self.heartbeat, self.progress)
        fleet = (self.worker_again, self.drain, self.resume, self.leave, self.close_poll)
        cell = (self.queue, self.queue, self.tenant, self.policy, self.purge, self.tick)
        times = (self.schedule, self.schedule, self.change_schedule, self.calendar, self.backfill)
        events = (self.trigger, self.change_trigger, self.event, self.event, self.event)
        kinds: tuple[Any, ...] = self.rng.choices(
            (everyday, rare, acts, fleet, cell, times, events), (10, 3, 3, 1, 1, 1, 2)
        )[0]
        made: Command = self.rng.choice(kinds)()
        return made

    # Jobs

    def _cmd(self, name: str, /, **fields: Any) -> Command:
        return {"cmd": name, **fields}

    def _job_id(self) -> str:
        self.jobs += 1
        return f"j{self.jobs:05}"

    def _resources(self) -> list[Any]:
        rng = self.rng
        custom = rng.choice(([], [], [], [["licence", 1000]], [["licence", 1000], ["slot", 2000]]))
        cpu = rng.choice((100, 1000, 1000, 2000, 3000))
        return [cpu, rng.choice((0, 0, GIB, 3 * GIB)), 0, rng.choice((0, 0, 0, 1000)), custom]

    def _affinity(self) -> list[Any] | None:
        rng = self.rng
        if rng.random() < 0.85:
            return None
        require = rng.choice(([], [["zone", ["a"]]]))
        prefer = rng.choice(([], [["zone", ["b"]]], [["disk", ["ssd"]]]))
        wait = rng.choice((0, 3_000))
        return [require, prefer, rng.choice(("", "zone")), rng.random() < 0.3, wait, ["special"]]

    def _retry(self) -> list[Any]:
        rng = self.rng
        backoff = rng.choice(("exponential", "linear", "fixed"))
        jitter = rng.choice((0.0, 0.5))
        grow = rng.choice((1.0, 1.0, 2.0))
        return [
            rng.choice((1, 1, 2, 4)),
            backoff,
            rng.choice((200, SECOND)),
            2.0,
            60_000,
            jitter,
            grow,
            8 * GIB,
        ]

    def _terms(self, copies: int = 1) -> list[Any]:
        rng = self.rng
        capabilities = sorted(rng.sample(CAPABILITIES, rng.choice((0, 0, 0, 1, 2))))
        needs = [self._resources(), capabilities, self._affinity(), copies]
        semantics = rng.choice(("at_least_once",) * 4 + ("at_most_once",))
        timeout = rng.choice((None, None, None, 2 * SECOND))
        runs = rng.choice((None, SECOND, 10 * SECOND, HOUR))
        name = f"name{rng.randrange(4)}"
        priority = rng.choice((0, 0, 0, 1, -1, 500, 500))
        asked = [name, rng.choice(QUEUES), rng.choice(TENANTS), priority, needs, self._retry()]
        return [*asked, semantics, timeout, runs, rng.random() < 0.4]

    def _spec(self, after: list[str] | None = None, group: list[Any] | None = None) -> list[Any]:
        """Writes a spec; every other job has the same terms, so that some are equal."""
        rng = self.rng
        copies = group[1] if group is not None and group[0] == "g" else 1
        plain = rng.random() < 0.5 and group is None
        queue = f"q{rng.randrange(2)}"
        common = ["alike", queue, "default", 0, [[1000]], [2, "fixed", SECOND, 2.0, SECOND, 0.0]]
        terms = common if plain else self._terms(copies)
        found = [] if after is None else after
        when = ("succeeded", "succeeded", "finished", "failed")
        dependencies = [[one, rng.choice(when)] for one in found]
        run_at = rng.choice((None,) * 6 + (self.now + 3 * SECOND,))
        expires = rng.choice((None,) * 6 + (self.now + 30 * SECOND,))
        concurrency = (
            None if plain or rng.random() < 0.8 else [rng.choice("xy"), rng.randrange(1, 3)]
        )
        finish_by = rng.choice((None,) * 6 + (self.now + 20 * SECOND,))
        labels = [] if plain else [["n", str(self.jobs)]]
        payload = rng.choice((b"", b'{"a":1}'))
        head = [terms, b'{"kind":"noop"}', self.now, 0, payload, dependencies, run_at, expires]
        return [*head, concurrency, labels, 0, None, None, finish_by, group]

    def _known(self, count: int) -> list[str]:
        newest = range(max(1, self.jobs - 20), self.jobs + 1)
        return sorted({f"j{self.rng.choice(newest):05}" for _ in range(count) if self.jobs})

    def _new_job(self, group: list[Any] | None = None) -> dict[str, Any]:
        after = self._known(self.rng.choice((0, 0, 0, 1, 2)))
        return {"id": self._job_id(), "spec": self._spec(after, group)}

    def _submitted(self, jobs: list[dict[str, Any]]) -> Command:
        made = self._cmd("submit", jobs=jobs, promised=self.rng.random() < 0.05)
        if self.rng.random() < 0.2:
            made["key"] = {"key": f"k{self.jobs}", "fingerprint": "f"}
            self.keyed.append(made)
        return made

    def submit(self) -> Command:
        return self._submitted([self._new_job()])

    def batch(self) -> Command:
        """Writes jobs that depend on each other."""
        jobs: list[dict[str, Any]] = []
        for _ in range(self.rng.randrange(2, 12)):
            count = self.rng.choice((0, 1, 2))
            known = sorted({self.rng.choice(jobs)["id"] for _ in range(count) if jobs})
            jobs.append({"id": self._job_id(), "spec": self._spec(known)})
        return self._submitted(jobs)

    def array(self) -> Command:
        return self._submitted(
            [self._new_job(["a", self.rng.randrange(1, 9), self.rng.choice((None, 1, 3))])]
        )

    def gang(self) -> Command:
        return self._submitted([self._new_job(["g", self.rng.randrange(2, 5)])])

    def repeat(self) -> Command:
        """Repeats a request, perhaps with other contents."""
        if not self.keyed:
            return self.submit()
        again = dict(self.rng.choice(self.keyed))
        if self.rng.random() < 0.3:
            again["key"] = {**again["key"], "fingerprint": "g"}
        if self.rng.random() < 0.3:
            again["jobs"] = [{**one, "id": self._job_id()} for one in again["jobs"]]
        return again

    def reject(self) -> Command:
        return self._cmd("reject", jobs=[self._new_job()], why="refused")

    def update(self) -> Command:
        """The player fills in the revision, right or one behind."""
        late = self.rng.random() < 0.1
        return self._cmd("update", job=self._pick(), spec=self._spec(), late=late)

    def _pick(self) -> int:
        return self.rng.randrange(10_000)

    def cancel(self) -> Command:
        return self._cmd("cancel", job=self._pick())

    def retry(self) -> Command:
        return self._cmd("retry", job=self._pick())

    def delete(self) -> Command:
        return self._cmd("delete", job=self._pick(), force=self.rng.random() < 0.3)

    def execute(self) -> Command:
        return self._cmd("execute", job=self._pick(), worker_id=self.rng.choice(self.workers))

    # Workers

    def register(self, name: str) -> Command:
        rng, number = self.rng, int(name[1:])
        zone, special = "ab"[number % 2], ("special",) if rng.random() < 0.1 else ()
        capacity = [
            1000 * rng.choice((1, 2, 4, 8)),
            8 * GIB,
            0,
            1000 * (number % 2),
            [["licence", 1000], ["slot", 3000]],
        ]
        return self._cmd(
            "register",
            worker_id=name,
            session=f"s{rng.randrange(2)}",
            name=name,
            capacity=capacity,
            capabilities=sorted(rng.sample(CAPABILITIES, rng.randrange(4))),
            queues=rng.choice((None, None, None, ["q0", "q1"])),
            labels=[["disk", rng.choice(("hdd", "ssd"))], ["zone", zone]],
            only=list(special),
        )

    def worker_again(self) -> Command:
        if self.rng.random() < 0.2:
            self.workers.append(f"w{len(self.workers)}")
            return self.register(self.workers[-1])
        return self.register(self.rng.choice(self.workers))

    def _ends(self, length: int) -> list[Any]:
        ends = (
            None,
            None,
            "succeeded",
            "succeeded",
            "succeeded",
            "failed",
            "cancelled",
            "timed_out",
        )
        return [self._end(state) for state in self.rng.choices(ends, k=length)]

    def _end(self, state: str | None) -> dict[str, Any] | None:
        rng = self.rng
        if state is None:
            return None
        report: dict[str, Any] = {"state": state}
        if state == "succeeded":
            report["result"] = rng.choice((None, b"1"))
        else:
            report |= {"error": b'{"type":"E"}', "exit_code": 1, "retryable": rng.random() < 0.8}
            report["delay_ms"] = rng.choice((None, None, 700))
        if rng.random() < 0.5:
            out = state == "failed" and rng.random() < 0.3
            cpu, peak = rng.randrange(5_000), rng.randrange(GIB)
            report["used"] = {"cpu_ms": cpu, "memory_peak": peak, "out_of_memory": out}
        return report

    def poll(self) -> Command:
        """Reports of what the worker runs as `ends` says, by number; names the rest or nothing."""
        rng = self.rng
        return self._cmd(
            "poll",
            worker_id=rng.choice(self.workers),
            max_orders=rng.choice((1, 2, 5, 50)),
            wait_ms=rng.choice((0, 5_000, 20_000)),
            ends=self._ends(4),
            names=rng.choice(("all", "all", "none", "some")),
            patient=rng.random() < 0.1,
        )

    def close_poll(self) -> Command:
        return self._cmd("close_poll", worker_id=self.rng.choice(self.workers))

    def complete(self) -> Command:
        end = self._end(self.rng.choice(("succeeded", "succeeded", "failed", "cancelled")))
        return self._cmd(
            "complete", execution=self._pick(), end=end, stale=self.rng.random() < 0.05
        )

    def heartbeat(self) -> Command:
        names = self.rng.choice(("all", "none", "some"))
        return self._cmd("heartbeat", worker_id=self.rng.choice(self.workers), names=names)

    def progress(self) -> Command:
        return self._cmd("progress", execution=self._pick(), progress=self.rng.random())

    def drain(self) -> Command:
        return self._cmd("drain", worker_id=self.rng.choice(self.workers))

    def resume(self) -> Command:
        return self._cmd("resume", worker_id=self.rng.choice(self.workers))

    def leave(self) -> Command:
        return self._cmd("leave", worker_id=self.rng.choice(self.workers))

    # The cell

    def queue(self) -> Command:
        rng = self.rng
        fields: dict[str, Any] = {"name": rng.choice(QUEUES), "replace": rng.random() < 0.2}
        if rng.random() < 0.4:
            fields["priority"] = rng.randrange(3)
        if rng.random() < 0.4:
            fields["weight"] = rng.choice((0.5, 1.0, 3.0))
        if rng.random() < 0.4:
            fields["max_workers"] = rng.randrange(1, 9)
        if rng.random() < 0.3:
            fields["rate_limit"] = [rng.randrange(1, 9), SECOND]
        if rng.random() < 0.5:
            fields["paused"] = rng.random() < 0.3
        if rng.random() < 0.2:
            fields["cleared"] = ["rate_limit", "max_workers"]
        return self._cmd("set_queue", **fields)

    def tenant(self) -> Command:
        rng = self.rng
        quota = [rng.choice((None, 2, 5)), rng.choice((None, 40)), rng.choice((None, 4_000))]
        weight = rng.choice((0.5, 1.0, 2.0))
        return self._cmd("set_tenant", name=rng.choice(TENANTS), weight=weight, quota=quota)

    def policy(self) -> Command:
        rng = self.rng
        order = rng.choice(("fair", "fair", "priority", "fifo", "round_robin"))
        backfill = rng.choice(("none", "easy", "easy", "conservative", "greedy"))
        gap = rng.choice((None, 100, 100))
        values: list[Any] = [
            order,
            backfill,
            rng.choice(("order", "shortest")),
            rng.choice((0.0, 10.0)),
        ]
        values += [24 * HOUR, 36_000, 24 * HOUR, gap, rng.choice((0, 10 * SECOND))]
        return self._cmd("set_policy", policy=[*values, rng.choice((None, None, 6))])

    def purge(self) -> Command:
        return self._cmd("purge", name=self.rng.choice(QUEUES), most=self.rng.choice((None, 3)))

    def tick(self) -> Command:
        return self._cmd("tick")

    # Schedules and triggers

    def _name(self, kind: str) -> str:
        self.others += 1
        return f"{kind}-{self.others:04}"

    def _template(self) -> list[Any]:
        made = self._spec()
        made[2], made[6], made[7], made[13] = 0, None, None, None
        return made

    def _plan(self, name: str, owner: str = "") -> list[Any]:
        rng = self.rng
        cron = rng.choice(("*/5 * * * *", "* * * * *", "30 2 * * *", "0 * * * *"))
        way = rng.choice(
            ((cron, None, None), ("", 7 * SECOND, None), ("", None, self.now + 40_000))
        )
        gap, fold = rng.choice(("jump", "skip", "shift")), rng.choice(("first", "second", "both"))
        finish = way[1] is not None and rng.random() < 0.3
        jitter = 0 if finish else rng.choice((0, 0, 2_000))
        calendars = rng.choice(([], [], ["holidays"]))
        holiday = rng.choice(("skip", "shift"))
        table = [*way, rng.choice(ZONES), gap, fold, finish, None, None, jitter, calendars, holiday]
        catch, overlap = (
            rng.choice(("none", "latest", "all")),
            rng.choice(("allow", "skip", "queue", "replace")),
        )
        return [
            name,
            table,
            self._template(),
            catch,
            7 * 24 * HOUR,
            overlap,
            rng.choice((1, 2)),
            owner,
        ]

    def schedule(self) -> Command:
        name = self._name("s")
        new = {"id": name, "plan": self._plan(name), "paused": self.rng.random() < 0.1}
        if self.rng.random() < 0.2:
            owner = self.rng.choice(("app", "site"))
            named = [f"{owner}-{self.rng.randrange(3)}" for _ in range(2)]
            both = [
                {"id": self._name("s"), "plan": self._plan(one, owner)}
                for one in sorted(set(named))
            ]
            return self._cmd("deploy_schedules", owner=owner, schedules=both)
        return self._cmd("create_schedule", schedule=new)

    def change_schedule(self) -> Command:
        rng, which = self.rng, self._pick()
        kind = rng.choice(("update", "delete", "pause", "trigger", "trigger"))
        more: dict[str, Any] = {}
        if kind == "update":
            more = {"plan": self._plan(""), "paused": rng.random() < 0.2}
        elif kind == "pause":
            more = {"paused": rng.random() < 0.5}
        return self._cmd(f"{kind}_schedule", schedule=which, **more)

    def calendar(self) -> Command:
        if self.rng.random() < 0.2:
            return self._cmd("delete_calendar", name="holidays")
        today = 719_163 + NOON // (24 * HOUR)
        days = sorted({today + self.rng.randrange(3) for _ in range(2)})
        return self._cmd("set_calendar", calendar=["holidays", days])

    def backfill(self) -> Command:
        """Writes instants of the past, as a user's request has them."""
        rng = self.rng
        if rng.random() < 0.2:
            return self._cmd(
                "cancel_backfill", schedule=self._pick(), backfill_id=f"b-{self.others:04}"
            )
        start = self.now - HOUR
        instants = [start - start % 60_000 + 60_000 * one for one in range(rng.randrange(1, 5))]
        return self._cmd(
            "backfill_schedule",
            schedule=self._pick(),
            backfill_id=self._name("b"),
            instants=instants,
            max_parallel=rng.randrange(1, 3),
            priority=rng.choice((0, -5)),
        )

    def _rule(self, name: str, owner: str = "") -> list[Any]:
        rng = self.rng
        event = rng.choice(("object.uploaded", "object.*", "rota.job.*", "*"))
        wanted = rng.choice((b"", b"", json.dumps({"data": {"size": 1}}).encode()))
        debounce = [rng.choice((SECOND, 5 * SECOND)), None, 0, rng.choice(("last", "all")), ""]
        batch = [None, 10 * SECOND, rng.randrange(2, 5), "all", rng.choice(("", "data.key"))]
        gathering = rng.choice((None, None, debounce, batch))
        rate = rng.choice((None, None, [2, SECOND]))
        return [name, event, self._template(), wanted, gathering, rate, owner]

    def trigger(self) -> Command:
        name = self._name("t")
        if self.rng.random() < 0.2:
            owner = self.rng.choice(("app", "site"))
            new = [{"id": name, "rule": self._rule(f"{owner}-{self.rng.randrange(2)}", owner)}]
            return self._cmd("deploy_triggers", owner=owner, triggers=new)
        return self._cmd("create_trigger", trigger={"id": name, "rule": self._rule(name)})

    def change_trigger(self) -> Command:
        kind = self.rng.choice(("update", "delete", "pause"))
        more: dict[str, Any] = {}
        if kind == "update":
            more = {"rule": self._rule(""), "paused": False}
        elif kind == "pause":
            more = {"paused": self.rng.random() < 0.5}
        return self._cmd(f"{kind}_trigger", trigger=self._pick(), **more)

    def event(self) -> Command:
        events = []
        for _ in range(self.rng.randrange(1, 4)):
            data = json.dumps(
                {"size": self.rng.randrange(3), "key": self.rng.choice("kl")}
            ).encode()
            kind = self.rng.choice(("object.uploaded", "object.removed"))
            events.append(["/bucket", f"e{self.rng.randrange(200)}", kind, data])
        return self._cmd("receive_events", events=events)
