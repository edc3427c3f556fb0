"""What users do to a cluster, through the real SDK, and what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rota.sdk.aio import AsyncClient
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from rota.sdk.flows import Patience
from rota.sim.clock import EPOCH_MS, Machine, MachineClock
from rota.sim.dice import Dice, dice_for
from rota.sim.history import History, Line
from rota.sim.network import Network
from rota.sim.peer import ClientTransport
from rota.sim.plan import Act, Plan
from rota.sim.worker import CPUS, Deed

PATIENCE = Patience(retry_for_s=20.0, read_s=15.0, switch_s=5.0)
FLOCK = 20
BURST = 60
LONG = 12
"""Ticks of a job that is not meant to be long."""
SCHEDULE_S = 5
LOOK_S = 0.5
NOOP = "noop"


class User:
    """Acts as the plan says; a look-out beside it keeps reading what was accepted."""

    def __init__(
        self, seed: int, network: Network, history: History, addresses: Sequence[str]
    ) -> None:
        self.machine = Machine("client", dice_for(seed, "client").clock_rate())
        self.ids: dict[str, str] = {}
        """By key, in the order of their acceptance."""
        self._seed = seed
        self._network = network
        self._history = history
        self._addresses = addresses
        self._clients = [self._client(number) for number in range(2)]

    def _client(self, number: int) -> AsyncClient:
        first = number % len(self._addresses)
        urls = (*self._addresses[first:], *self._addresses[:first])
        endpoint = Endpoint(urls[0], "token", "the plan", None, (), others=urls[1:])
        return AsyncClient(
            endpoint,
            patience=PATIENCE,
            clock=MachineClock(self.machine, self._network.loop),
            transport=ClientTransport(self._network, self.machine),
        )

    def take_up(self, plan: Plan) -> None:
        """Begins; each act runs for itself."""
        self.machine.spawn(self._look_out())
        if plan.options.schedule:
            self.machine.spawn(self._make_schedule())
        for act in plan.acts:
            self._network.loop.after(act.at_s, self.machine, partial(self._begin, act))

    def _begin(self, act: Act) -> None:
        self.machine.spawn(self._act(act))

    async def _act(self, act: Act) -> None:
        dice = dice_for(self._seed, "act", act.number)
        client = dice.choice(self._clients)
        try:
            await getattr(self, f"_{act.kind}")(client, f"{act.kind}-{act.number}", dice)
        except (UnreachableError, ApiError) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                self._network.complain(f"{act.kind}-{act.number} was refused: {error}")

    # What they submit

    def _job(self, key: str, dice: Dice, **more: Any) -> dict[str, Any]:
        ticks = more.pop("ticks", dice.randint(0, LONG))
        tick_s = more.pop("tick_s", dice.uniform(0.02, 0.4))
        uneven = 0 if ticks > LONG else dice.randint(0, 4)
        deed = Deed(key, ticks, tick_s, more.pop("fails_before", 0), uneven)
        task = {"kind": "command", "argv": deed.argv()}
        return {"name": key.partition("-")[0], "task": task, "labels": {"key": key}, **more}

    async def _submit(self, client: AsyncClient, key: str, job: dict[str, Any]) -> None:
        self._history.sent.append(key)
        answered = await client.submit(job, idempotency_key=key)
        self._answered(key, answered.job_id)

    async def _submit_all(
        self, client: AsyncClient, keys: list[str], jobs: list[dict[str, Any]]
    ) -> None:
        self._history.sent.extend(keys)
        ids = await client.submit_batch(jobs, idempotency_key=keys[0])
        for key, job_id in zip(keys, ids, strict=True):
            self._answered(key, job_id)

    def _answered(self, key: str, job_id: str) -> None:
        self._history.answered.append((key, job_id))
        self.ids[key] = job_id

    async def _plain(self, client: AsyncClient, key: str, dice: Dice) -> None:
        await self._submit(client, key, self._job(key, dice))

    async def _long(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """Outlasts a lease or two."""
        job = self._job(key, dice, ticks=dice.randint(60, 150), tick_s=dice.uniform(0.05, 0.15))
        await self._submit(client, key, job)

    async def _hog(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """Wants much of a worker."""
        cpu = dice.randint(2, CPUS)
        await self._submit(client, key, self._job(key, dice, requirements={"cpu": cpu}))

    async def _flaky(self, client: AsyncClient, key: str, dice: Dice) -> None:
        retry = {"max_attempts": 3, "delay": "200ms", "backoff": "fixed"}
        job = self._job(key, dice, fails_before=dice.randint(2, 4), retry=retry)
        await self._submit(client, key, job)

    async def _once(self, client: AsyncClient, key: str, dice: Dice) -> None:
        await self._submit(client, key, self._job(key, dice, semantics="at_most_once"))

    async def _chain(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """Three in a row, the first of which sometimes fails for good."""
        keys = [f"{key}-{place}" for place in range(3)]
        fails = 2 * dice.chance(0.2)
        jobs = [
            {**self._job(one, dice, fails_before=0 if place else fails), "ref": one}
            for place, one in enumerate(keys)
        ]
        for parent, child in zip(keys, jobs[1:], strict=False):
            child["dependencies"] = [f"ref:{parent}"]
        await self._submit_all(client, keys, jobs)

    async def _twice(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """The same request by two at once, and again later."""
        job = self._job(key, dice)
        await asyncio.gather(
            *(self._submit(one, key, job) for one in self._clients), return_exceptions=True
        )
        await asyncio.sleep(dice.uniform(0.0, 5.0))
        await self._submit(client, key, job)

    async def _keyed(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """One at a time of a few."""
        alike = {"key": f"group-{dice.randint(0, 2)}", "limit": 1}
        await self._submit(client, key, self._job(key, dice, concurrency=alike))

    async def _late(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """Is due in the middle of everything."""
        await self._submit(client, key, self._job(key, dice, run_at=_due(dice)))

    async def _timed(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """May not take long, and sometimes does."""
        await self._submit(client, key, self._job(key, dice, timeout=1.0))

    async def _flock(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """Many that only need a worker's word."""
        keys = [f"{key}-{place}" for place in range(FLOCK)]
        task = {"kind": NOOP}
        jobs = [{"name": NOOP, "task": task, "labels": {"key": one}} for one in keys]
        await self._submit_all(client, keys, jobs)

    async def _burst(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """More than there is room for, said to be short; now and then one is not."""
        keys = [f"{key}-{place}" for place in range(BURST)]
        jobs = []
        for one in keys:
            ticks = dice.choice((0, 1, 1, 1, 2, 2, 3, 60))
            job = self._job(one, dice, ticks=ticks, tick_s=dice.uniform(0.005, 0.03))
            jobs.append({**job, "expected_runtime": "20ms"})
        await self._submit_all(client, keys, jobs)

    async def _cancel(self, client: AsyncClient, key: str, dice: Dice) -> None:
        """One of the newest; if it is said never to run again, the witness hears of it."""
        if not self.ids:
            return
        chosen = dice.choice(list(self.ids)[-8:])
        try:
            job = await client.cancel(self.ids[chosen])
        except (ConflictError, NotFoundError):
            return
        if job.status == "cancelled":
            at = self._network.loop.true_s
            self._history.lines.append(Line(chosen, 0, "cancelled", at, "client"))
            self._network.trace.note(at, "line client", chosen, "cancelled")

    # What they look at

    async def _look_out(self) -> None:
        """One look after the other: what two had seen could not be put in order."""
        dice = dice_for(self._seed, "looks")
        while True:
            await asyncio.sleep(dice.uniform(0.0, 2 * LOOK_S))
            if not self.ids:
                continue
            job_id = self.ids[dice.choice(list(self.ids)[-30:])]
            try:
                job = await dice.choice(self._clients).job(job_id)
            except NotFoundError:
                self._history.missing.append(job_id)
            except (UnreachableError, ApiError):
                continue
            else:
                self._history.seen.append((job_id, job.status))

    async def _make_schedule(self) -> None:
        dice = dice_for(self._seed, "schedule")
        await asyncio.sleep(dice.uniform(0.5, 3.0))
        spec = {
            "name": "every so often",
            "interval": SCHEDULE_S,
            "catch_up": dice.choice(("all", "latest")),
            "job": {"name": NOOP, "task": {"kind": NOOP}},
        }
        with suppress(UnreachableError, ApiError):
            await self._clients[0].create_schedule(spec)


def _due(dice: Dice) -> str:
    """A few seconds from now by the user's clock, as the API writes times."""
    ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000) + dice.randint(0, 12_000)
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
