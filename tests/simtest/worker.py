"""Simulated worker: the real session and agent, and jobs that only write witness lines.

Jobs run under a supervisor, as in reality: it has the timers of their leases, ends them when the
agent dies, and goes on while the agent is frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from structlog.typing import FilteringBoundLogger

from rota.sdk.servers import Servers
from rota.verify.history import History, WitnessLine
from rota.wire.formats import ByteSize
from rota.wire.jobs import Command
from rota.wire.workers import CompletedReport, OrderView, RegisterSpec, ResourcesSpec
from rota.worker.executor import Executor, RunnableTask
from rota.worker.reports import StopReason, report_ended, report_exit
from rota.worker.run_loop import FatalError, PollLoop, RunLoop
from rota.worker.server_client import ServerClient
from rota.worker.session import Session
from tests.simtest.clock import SIMULATION, Machine, MachineClock, SecondsClock
from tests.simtest.network import Network, WorkerWire
from tests.simtest.rng import Rng

CPUS = 8
SILENT = structlog.make_filtering_bound_logger(50)
PIPE_DELAY_S = 0.001
"""Delay between an agent and its supervisor."""
RESTART_S = 1.0
"""Pause before a worker that has deregistered starts again."""
LEASE_ENDED = "lease"


def _quiet_log() -> FilteringBoundLogger:
    quiet: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=SILENT, processors=[]
    )
    return quiet


@dataclass(frozen=True, slots=True)
class JobScript:
    """Script of a simulated job, in its command line."""

    key: str
    ticks: int
    tick_s: float
    fails_before: int
    """Attempts below this one fail."""
    uneven: int
    """Factor by which some executions take longer than others."""

    @staticmethod
    def of(order: OrderView, task: Command) -> JobScript:
        """Reads it from the command line; each job of an array or gang has a key of its own."""
        _, key, ticks, tick_s, fails_before, uneven = task.argv
        place = order.array or order.gang
        if place is not None:
            key = f"{key}-{place.index}"
        return JobScript(key, int(ticks), float(tick_s), int(fails_before), int(uneven))

    def argv(self) -> list[str]:
        """Writes it as a command line."""
        numbers = (self.ticks, round(self.tick_s, 3), self.fails_before, self.uneven)
        return ["sim", self.key, *map(str, numbers)]

    def fails(self, order: OrderView) -> bool:
        """Whether this attempt fails; of an array or gang, only the first job does.

        A retry of an array by hand begins with attempt 1 again, under higher fences.
        """
        if order.array is not None:
            return order.array.index == 0 and order.fence < self.fails_before
        first = order.gang is None or order.gang.index == 0
        return first and order.attempt < self.fails_before

    def ticks_under(self, fence: int) -> int:
        """Returns the length of the execution with this fence: each is different."""
        return self.ticks * (1 + fence * self.uneven % 3)


class SimulatedProcess:
    """Process of a job, on the supervisor's machine."""

    def __init__(
        self, worker: SimulatedWorker, order: OrderView, script: JobScript, deadline: float
    ) -> None:
        self._worker = worker
        self._order = order
        self._script = script
        self._deadline = deadline
        self._task: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[str] = worker.network.loop.create_future()

    def begin(self) -> None:
        """Starts the process."""
        if self._worker.is_up and not self.ended.done():
            self._task = asyncio.get_running_loop().create_task(self._live())
            self._watch_lease()

    def hold_until(self, deadline: float) -> None:
        """Extends the lease."""
        self._deadline = max(self._deadline, deadline)

    def kill(self, cause: str) -> None:
        """Kills the process; the supervisor writes the moment into the witness."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._write("killed")
        self._exit(cause)

    def _watch_lease(self) -> None:
        left = self._deadline - self._worker.clock.now()
        if left <= 0:
            self.kill(LEASE_ENDED)
        elif not self.ended.done():
            asyncio.get_running_loop().call_later(max(left, 0.001), self._watch_lease)

    async def _live(self) -> None:
        script = self._script
        timeout = self._order.timeout
        try:
            async with asyncio.timeout(None if timeout is None else float(timeout)):
                self._write("begin")
                for _ in range(script.ticks_under(self._order.fence)):
                    await asyncio.sleep(script.tick_s)
                    self._write("tick")
                if script.fails(self._order):
                    return self._exit("failed")
                self._write("end")
        except TimeoutError:
            return self._exit("timeout")
        return self._exit("done")

    def _write(self, word: str) -> None:
        self._worker.witness(self._script.key, self._order.fence, word)

    def _exit(self, how: str) -> None:
        """Reports the end to the agent, if it runs."""

        def report() -> None:
            if not self.ended.done():
                self.ended.set_result(how)

        self._worker.network.loop.after(PIPE_DELAY_S, self._worker.machine, report)
        self._worker.processes.pop(self._order.execution_id, None)


class SimulatedExecution:
    """Agent's side of a job's execution."""

    unsent_log: asyncio.Task[None] | None = None

    def __init__(self, worker: SimulatedWorker, order: OrderView, script: JobScript) -> None:
        self.lapsed = False
        self._worker = worker
        self._order = order
        self._stop_reason: StopReason | None = None
        session = worker.session
        assert session is not None
        deadline = session.deadline(order.execution_id)
        now = worker.clock.now()
        self._process = SimulatedProcess(
            worker, order, script, now if deadline is None else deadline
        )

    def stop(self, reason: StopReason) -> None:
        """Asks the execution to end."""
        self._stop_reason = reason
        self._to_supervisor(lambda: self._process.kill("stop"))

    def abandon(self) -> None:
        """Ends the execution at once."""
        self._to_supervisor(lambda: self._process.kill("kill"))

    def hold_until(self, deadline: float) -> None:
        """Extends the lease."""
        self._to_supervisor(lambda: self._process.hold_until(deadline))

    async def run(self) -> CompletedReport:
        """Runs the job to its end and returns its report."""
        worker, order = self._worker, self._order
        worker.machine.step()
        worker.processes[order.execution_id] = self._process
        self._to_supervisor(self._process.begin)
        how = await self._process.ended
        worker.machine.step()
        self.lapsed = how == LEASE_ENDED
        if how == "timeout":
            return report_ended(order.execution_id, order.fence, "timed_out", "timed out", None)
        if how == "stop" and self._stop_reason == "cancelled":
            return report_ended(order.execution_id, order.fence, "cancelled", "cancelled", None)
        return report_exit(order.execution_id, order.fence, 0 if how == "done" else 1, "")

    def _to_supervisor(self, action: Callable[[], None]) -> None:
        self._worker.network.loop.after(PIPE_DELAY_S, self._worker.supervisor, action)


class SimulatedWorker:
    """Worker machine, on which agents start and end."""

    def __init__(
        self, number: int, network: Network, history: History, addresses: Sequence[str], rng: Rng
    ) -> None:
        self.spare = 0
        """Number of orders that it prefetches."""
        rate = rng.clock_rate()
        self.machine = Machine(f"worker-{number}", rate)
        self.supervisor = Machine(f"supervisor-{number}", rate)
        self.supervisor.alive = False
        self.machine.alive = False
        self.network = network
        self.clock = SecondsClock(MachineClock(self.machine, network.loop))
        self.session: Session | None = None
        self.processes: dict[str, SimulatedProcess] = {}
        self._executor: Executor | None = None
        self._poll_loop: PollLoop | None = None
        self._history = history
        self._addresses = rng.sample(list(addresses), len(addresses))
        history.slots[self.machine.name] = CPUS

    @property
    def is_up(self) -> bool:
        """Whether jobs can run there."""
        return self.supervisor.alive

    def start(self) -> None:
        self.machine.boot()
        self.supervisor.boot()
        self.machine.spawn(self._live())

    def die(self) -> None:
        """Ends the whole machine, as by a loss of power."""
        self.machine.alive = self.supervisor.alive = False
        self.processes.clear()
        self.supervisor.end_tasks()
        self.machine.end_tasks()

    def lose_agent(self) -> None:
        """Kills the agent; the supervisor notices and ends the jobs."""
        self.machine.alive = False
        self.machine.end_tasks()
        for process in list(self.processes.values()):
            self.network.loop.after(
                PIPE_DELAY_S, self.supervisor, partial(process.kill, "supervisor")
            )

    def drain(self) -> None:
        """Drains the worker, as on SIGTERM."""
        if self.session is not None and self._poll_loop is not None and self.machine.alive:
            self.session.drain()
            self._poll_loop.wake()

    def _come_back(self) -> None:
        """Starts another agent after one that has deregistered."""
        if self.session is None:
            self.die()
            self.start()

    def witness(self, key: str, fence: int, word: str) -> None:
        """Writes a witness line for a job; the lines have this order."""
        self.supervisor.step()
        at = self.network.loop.true_s
        self._history.lines.append(WitnessLine(key, fence, word, at, self.machine.name))
        self.network.trace.note(at, "line", self.machine.name, key, fence, word)

    def runner_of(self, order: OrderView, task: RunnableTask | None) -> SimulatedExecution:
        """Makes the execution of an order."""
        assert isinstance(task, Command)
        return SimulatedExecution(self, order, JobScript.of(order, task))

    async def _live(self) -> None:
        log = _quiet_log()
        self.session = session = Session(spare=self.spare)
        client = ServerClient(
            Servers(self._addresses), WorkerWire(self.network, self.machine), self.clock
        )
        self._poll_loop = poll_loop = PollLoop(session, client, self.clock, log)
        self._executor = executor = Executor(session, self, log, poll_loop.wake, self.clock)
        run_loop = RunLoop(session, poll_loop, executor, self.clock, log)
        beside = [
            asyncio.create_task(run_loop.watch()),
            asyncio.create_task(poll_loop.send_heartbeats(executor)),
        ]
        spec = RegisterSpec(
            name=self.machine.name, resources=ResourcesSpec(cpu=CPUS, memory=ByteSize(2**33))
        )
        try:
            await run_loop.work(spec, _nothing)
            self.network.loop.after(RESTART_S, SIMULATION, self._come_back)
        except FatalError as error:
            self.network.report_bug(f"{self.machine.name} gave up: {error}")
        finally:
            for task in beside:
                task.cancel()
            self.session = None


async def _nothing() -> None:
    """Does nothing: a simulated job leaves no logs to send."""
