"""Simulated users: submit, cancel and read jobs through the real SDK, and note the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rota.sdk.async_client import AsyncClient
from rota.sdk.discovery import Endpoint
from rota.sdk.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from rota.sdk.request_plan import Patience
from rota.verify.history import History, WitnessLine
from tests.simtest.clock import EPOCH_MS, Machine, MachineClock
from tests.simtest.network import ClientTransport, Network
from tests.simtest.plan import Action, SimulationPlan
from tests.simtest.rng import Rng, rng_for
from tests.simtest.worker import CPUS, JobScript

PATIENCE = Patience(retry_for_s=20.0, read_s=15.0, switch_s=5.0)
FLOCK = 20
BURST = 60
LONG = 12
"""Ticks of a job that is not meant to be long."""
SCHEDULE_S = 5
LOOK_S = 0.5
NOOP = "noop"


class SimulatedUser:
    """User that does the planned actions, and keeps reading accepted jobs beside them."""

    def __init__(
        self, seed: int, network: Network, history: History, addresses: Sequence[str]
    ) -> None:
        self.machine = Machine("client", rng_for(seed, "client").clock_rate())
        self.ids: dict[str, str] = {}
        """Job ids by key, in the order of acceptance."""
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

    def start(self, plan: SimulationPlan) -> None:
        """Schedules all actions; each runs in a task of its own."""
        self.machine.spawn(self._poll_statuses())
        if plan.options.schedule:
            self.machine.spawn(self._make_schedule())
        for action in plan.actions:
            self._network.loop.after(action.at_s, self.machine, partial(self._begin, action))

    def _begin(self, action: Action) -> None:
        self.machine.spawn(self._act(action))

    async def _act(self, action: Action) -> None:
        rng = rng_for(self._seed, "act", action.number)
        client = rng.choice(self._clients)
        try:
            await getattr(self, f"_{action.kind}")(client, f"{action.kind}-{action.number}", rng)
        except (UnreachableError, ApiError) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                self._network.report_bug(f"{action.kind}-{action.number} was refused: {error}")

    # Actions

    def _job(self, key: str, rng: Rng, **more: Any) -> dict[str, Any]:
        ticks = more.pop("ticks", rng.randint(0, LONG))
        tick_s = more.pop("tick_s", rng.uniform(0.02, 0.4))
        uneven = 0 if ticks > LONG else rng.randint(0, 4)
        script = JobScript(key, ticks, tick_s, more.pop("fails_before", 0), uneven)
        task = {"kind": "command", "argv": script.argv()}
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

    async def _plain(self, client: AsyncClient, key: str, rng: Rng) -> None:
        await self._submit(client, key, self._job(key, rng))

    async def _long(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """A job that outlasts a lease or two."""
        job = self._job(key, rng, ticks=rng.randint(60, 150), tick_s=rng.uniform(0.05, 0.15))
        await self._submit(client, key, job)

    async def _hog(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """A job that needs much of a worker."""
        cpu = rng.randint(2, CPUS)
        await self._submit(client, key, self._job(key, rng, requirements={"cpu": cpu}))

    async def _flaky(self, client: AsyncClient, key: str, rng: Rng) -> None:
        retry = {"max_attempts": 3, "delay": "200ms", "backoff": "fixed"}
        job = self._job(key, rng, fails_before=rng.randint(2, 4), retry=retry)
        await self._submit(client, key, job)

    async def _once(self, client: AsyncClient, key: str, rng: Rng) -> None:
        await self._submit(client, key, self._job(key, rng, semantics="at_most_once"))

    async def _chain(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Three jobs in a row, the first of which sometimes fails for good."""
        keys = [f"{key}-{place}" for place in range(3)]
        fails = 2 * rng.chance(0.2)
        jobs = [
            {**self._job(one, rng, fails_before=0 if place else fails), "ref": one}
            for place, one in enumerate(keys)
        ]
        for parent, child in zip(keys, jobs[1:], strict=False):
            child["dependencies"] = [f"ref:{parent}"]
        await self._submit_all(client, keys, jobs)

    async def _twice(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """The same request from two clients at once, and again later."""
        job = self._job(key, rng)
        await asyncio.gather(
            *(self._submit(one, key, job) for one in self._clients), return_exceptions=True
        )
        await asyncio.sleep(rng.uniform(0.0, 5.0))
        await self._submit(client, key, job)

    async def _keyed(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Jobs of which one at a time may run."""
        alike = {"key": f"group-{rng.randint(0, 2)}", "limit": 1}
        await self._submit(client, key, self._job(key, rng, concurrency=alike))

    async def _late(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """A job that is due in the middle of everything."""
        await self._submit(client, key, self._job(key, rng, run_at=_due(rng)))

    async def _timed(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """A job that may not take long, and sometimes does."""
        await self._submit(client, key, self._job(key, rng, timeout=1.0))

    async def _flock(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Many jobs that need no process."""
        keys = [f"{key}-{place}" for place in range(FLOCK)]
        task = {"kind": NOOP}
        jobs = [{"name": NOOP, "task": task, "labels": {"key": one}} for one in keys]
        await self._submit_all(client, keys, jobs)

    async def _burst(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """More jobs than the workers can hold, declared as short; now and then one is not."""
        keys = [f"{key}-{place}" for place in range(BURST)]
        jobs = []
        for one in keys:
            ticks = rng.choice((0, 1, 1, 1, 2, 2, 3, 60))
            job = self._job(one, rng, ticks=ticks, tick_s=rng.uniform(0.005, 0.03))
            jobs.append({**job, "expected_runtime": "20ms"})
        await self._submit_all(client, keys, jobs)

    async def _array(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """An array whose first job fails, and which is retried by hand."""
        fails = 2 * rng.chance(0.7)
        await self._submit(
            client, key, self._job(key, rng, fails_before=fails, count=rng.randint(2, 4))
        )
        await asyncio.sleep(rng.uniform(2.0, 10.0))
        await self._retry(client, key)

    async def _gang(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """A gang that fails as a whole at its first attempt, now and then."""
        job = self._job(
            key,
            rng,
            fails_before=2 * rng.chance(0.5),
            retry={"max_attempts": 2, "delay": "200ms"},
            gang={"size": rng.randint(2, 3)},
        )
        await self._submit(client, key, job)

    async def _revive(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Retries one of the newest by hand, with all that waited for it."""
        if self.ids:
            await self._retry(client, rng.choice(list(self.ids)[-20:]))

    async def _retry(self, client: AsyncClient, key: str) -> None:
        with suppress(ConflictError, NotFoundError):
            await client.retry(self.ids[key])

    async def _delete(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Deletes one of the newest, if it has ended."""
        if self.ids:
            job_id = self.ids[rng.choice(list(self.ids)[-20:])]
            self._history.deleted.append(job_id)
            with suppress(ConflictError, NotFoundError):
                await client.delete(job_id)

    async def _cancel(self, client: AsyncClient, key: str, rng: Rng) -> None:
        """Cancels one of the newest; an acknowledged cancellation goes into the witness."""
        if not self.ids:
            return
        chosen = rng.choice(list(self.ids)[-8:])
        try:
            job = await client.cancel(self.ids[chosen])
        except (ConflictError, NotFoundError):
            return
        if job.status == "cancelled":
            at = self._network.loop.true_s
            self._history.lines.append(WitnessLine(chosen, 0, "cancelled", at, "client"))
            self._network.trace.note(at, "line client", chosen, "cancelled")

    # Reads

    async def _poll_statuses(self) -> None:
        """Reads one job after the other: two reads at once could not be put in order."""
        rng = rng_for(self._seed, "looks")
        while True:
            await asyncio.sleep(rng.uniform(0.0, 2 * LOOK_S))
            if not self.ids:
                continue
            job_id = self.ids[rng.choice(list(self.ids)[-30:])]
            try:
                job = await rng.choice(self._clients).job(job_id)
            except NotFoundError:
                self._history.missing.append(job_id)
            except (UnreachableError, ApiError):
                continue
            else:
                self._history.seen.append((job_id, job.status))

    async def _make_schedule(self) -> None:
        rng = rng_for(self._seed, "schedule")
        await asyncio.sleep(rng.uniform(0.5, 3.0))
        spec = {
            "name": "every so often",
            "interval": SCHEDULE_S,
            "catch_up": rng.choice(("all", "latest")),
            "job": {"name": NOOP, "task": {"kind": NOOP}},
        }
        with suppress(UnreachableError, ApiError):
            await self._clients[0].create_schedule(spec)


def _due(rng: Rng) -> str:
    """Returns a time a few seconds from now by the user's clock, in the API's format."""
    ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000) + rng.randint(0, 12_000)
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()
