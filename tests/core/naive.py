"""Naive scheduler, slow and obvious: lists, sorts, and everything looked up anew.

Written from the promises, not from the code: no heaps, no classes of jobs, no bits, no timers. It
knows only what decides: states, attempts, fences, and which worker runs what.
"""

from __future__ import annotations

from fractions import Fraction

from tests.core.naive_nouns import Execution, Job, Poll, Queue, Worker

LEASE = 17_000
STOP_WINDOW = 30_000
PATIENCE = 45_000
LOSSES = 5
WAITING = ("pending", "queued")
FINAL = ("succeeded", "failed", "cancelled", "skipped", "expired")


class Naive:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.executions: dict[str, Execution] = {}
        self.workers: dict[str, Worker] = {}
        self.queues: dict[str, Queue] = {}
        self.answers: dict[int, list[str]] = {}
        self.now = 0

    # Decisions

    def executions_of(self, worker: Worker) -> list[Execution]:
        return [one for one in self.executions.values() if one.worker == worker.id]

    def free(self, worker: Worker) -> tuple[int, int]:
        executions = self.executions_of(worker)
        cpu = worker.cpu - sum(one.job.cpu for one in executions)
        gpu = worker.gpu - sum(one.job.gpu for one in executions)
        return cpu, gpu

    def could_run(self, worker: Worker, job: Job) -> bool:
        cpu, gpu = self.free(worker)
        return (
            (worker.queues is None or job.queue in worker.queues)
            and all(one in worker.capabilities for one in job.capabilities)
            and (job.cpu <= cpu or job.cpu == 0)
            and (job.gpu <= gpu or job.gpu == 0)
        )

    def badness(self, worker: Worker, job: Job) -> tuple[int, int, int]:
        """A gpu machine for plain work is bad; then what leaves the most capacity unused."""
        cpu, gpu = self.free(worker)
        left = (cpu - job.cpu) * 1000 // worker.cpu if worker.cpu else 0
        if worker.gpu:
            left += (gpu - job.gpu) * 1000 // worker.gpu
        wasted = 1 if worker.gpu and not job.gpu else 0
        return (wasted, left, worker.rank)

    def has_slot(self, job: Job) -> bool:
        if job.key is None:
            return True
        alike = [one for one in self.jobs.values() if one.key == job.key]
        running = [one for one in alike if one.state in ("running", "cancelling")]
        ready = sorted((one for one in alike if one.state == "queued"), key=lambda one: one.place)
        return job in ready[: max(0, job.limit - len(running))]

    def within_limits(self, job: Job) -> bool:
        queue = self.queues[job.queue]
        if queue.paused:
            return False
        running = [one for one in self.executions.values() if one.job.queue == job.queue]
        if queue.max_workers is not None and len(running) >= queue.max_workers:
            return False
        return queue.rate is None or self.tokens(queue) >= 1

    def tokens(self, queue: Queue) -> Fraction:
        assert queue.rate is not None
        count, per = queue.rate
        grown = queue.tokens + Fraction((self.now - queue.filled_at) * count, per)
        return min(grown, Fraction(count))

    def queued(self) -> list[Job]:
        ready = [one for one in self.jobs.values() if one.state == "queued"]
        return sorted(ready, key=lambda one: (-self.queues[one.queue].priority, *one.place))

    def dispatch(self) -> None:
        """Starts the first queued job that fits on a worker, again and again, until none does."""
        while self.dispatch_one():
            pass

    def dispatch_one(self) -> bool:
        for job in self.queued():
            if not (self.has_slot(job) and self.within_limits(job)):
                continue
            fit = [
                worker
                for worker in self.workers.values()
                if worker.state == "online"
                and worker.poll is not None
                and worker.poll.free_slots > 0
                and self.could_run(worker, job)
            ]
            if fit:
                self.start(job, min(fit, key=lambda worker: self.badness(worker, job)))
                return True
        return False

    def start(self, job: Job, worker: Worker) -> None:
        assert worker.poll is not None
        job.state, job.why = "running", ""
        job.attempt += 1
        job.fence += 1
        self.executions[job.id] = Execution(job, worker.id, self.now, self.now + LEASE)
        worker.poll.orders.append(job.id)
        worker.poll.free_slots -= 1
        queue = self.queues[job.queue]
        if queue.rate is not None:
            queue.tokens, queue.filled_at = self.tokens(queue) - 1, self.now

    # Jobs

    def submit(self, job: Job) -> None:
        self.queues.setdefault(job.queue, Queue())
        self.jobs[job.id] = job
        for upstream, when in job.after:
            above = self.jobs[upstream]
            if above.state not in FINAL:
                job.unmet.append((upstream, when))
            elif not accepted(when, above.state):
                return self.end(job, "skipped", "upstream")
        return self.begin(job)

    def begin(self, job: Job) -> None:
        """Moves a waiting job to the state in which it has to wait."""
        start = job.due if job.due is not None else job.run_at
        if job.expires_at is not None and job.expires_at <= self.now:
            self.end(job, "expired", "expires_at")
        elif job.unmet:
            job.state, job.why = "pending", "dependencies"
        elif start is not None and start > self.now:
            job.state, job.why = "pending", "run_at" if job.due is None else "retry"
        else:
            if job.state != "queued":
                job.why = "ready"
            job.state, job.due = "queued", None

    def end(self, job: Job, state: str, why: str) -> None:
        job.state, job.why, job.due, job.unmet = state, why, None, []
        self.executions.pop(job.id, None)
        for below in self.jobs.values():
            for edge in [one for one in below.unmet if one[0] == job.id]:
                if below.state in FINAL:
                    break
                if not accepted(edge[1], state):
                    self.end(below, "skipped", "upstream")
                else:
                    below.unmet.remove(edge)
                    if not below.unmet:
                        self.begin(below)

    def cancel(self, job: Job) -> None:
        if job.state in WAITING:
            self.end(job, "cancelled", "cancelled")
        elif job.state == "running":
            job.state, job.why = "cancelling", "cancelled"
            one = self.executions[job.id]
            one.stop_at = self.now
            poll = self.workers[one.worker].poll
            if poll is not None:
                poll.answer = True

    def update(self, job: Job) -> None:
        """Follows a change of a waiting job."""
        self.queues.setdefault(job.queue, Queue())
        self.begin(job)

    def retry(self, job: Job) -> None:
        """Starts a job over, and those that were skipped because of it."""
        self.revive(job)
        while found := [one for one in self.jobs.values() if self.is_back(one)]:
            for one in found:
                self.revive(one)

    def is_back(self, job: Job) -> bool:
        if job.state != "skipped":
            return False
        above = [(self.jobs[upstream].state, when) for upstream, when in job.after]
        live = [state for state, _ in above if state not in FINAL]
        return bool(live) and all(state not in FINAL or accepted(w, state) for state, w in above)

    def revive(self, job: Job) -> None:
        job.state, job.attempt, job.losses, job.why = "pending", 0, 0, "retried"
        job.lives += 1
        if job.expires_at is not None and job.expires_at <= self.now:
            job.expires_at = None
        job.unmet = [edge for edge in job.after if self.jobs[edge[0]].state not in FINAL]
        self.begin(job)

    # Executions

    def complete(self, job: Job, how: str) -> None:
        self.executions.pop(job.id)
        if how == "succeeded":
            self.end(job, "succeeded", "")
        elif how == "cancelled" or job.state == "cancelling":
            self.end(job, "cancelled", "cancelled")
        elif how != "hopeless" and job.attempt < job.max_attempts and not job.once:
            job.state = "pending"
            job.due = self.now + (0 if how == "at once" else job.delay)
            self.begin(job)
        else:
            why = {"hopeless": "not_retryable", "timed_out": "timeout", "at once": "exit_code"}
            self.end(job, "failed", why.get(how, "error"))

    def lose(self, one: Execution) -> None:
        job = one.job
        if one.stop_at is not None:
            return self.complete(job, "cancelled")
        self.executions.pop(job.id)
        job.losses += 1
        if job.once or job.losses >= LOSSES:
            return self.end(job, "failed", "lost")
        job.attempt -= 1
        job.state, job.why = "queued", "lost"
        return self.begin(job)

    # Workers

    def hear(self, worker: Worker) -> None:
        worker.seen = self.now
        if worker.state == "offline":
            worker.state, worker.look_at = "online", self.now + LEASE

    def renew(self, worker: Worker, names: list[str] | None) -> None:
        for one in self.executions_of(worker):
            if names is not None and one.job.id in names:
                one.named = True
            elif names is not None or not one.named:
                continue
            if one.stop_at is None or self.now <= one.stop_at + STOP_WINDOW:
                one.lease = self.now + LEASE

    def open(self, worker: Worker, poll: Poll, names: list[str] | None) -> None:
        """Opens a poll; orders that the worker has not named yet come first."""
        worker.poll = poll
        executions = self.executions_of(worker)
        for one in executions if names is not None else []:
            fresh = one.claimed_at > worker.registered_at or not one.job.once
            if one.job.id in (names or ()) or one.named or one.stop_at is not None or not fresh:
                continue
            if self.now < one.claimed_at + PATIENCE:
                poll.orders.append(one.job.id)
                poll.free_slots -= 1
        if poll.until <= self.now or any(
            o.stop_at is not None and not o.stop_sent for o in executions
        ):
            poll.answer = True

    def close(self, worker: Worker) -> None:
        if worker.poll is not None:
            self.answers[worker.poll.number] = worker.poll.orders
            worker.poll = None

    def restart(self) -> None:
        """Forgets what is not written: polls, progress of rate limits, ages of leases.

        A job that waits for others waits again for those of them that were started over.
        """
        for worker in self.workers.values():
            worker.poll, worker.seen, worker.look_at = None, self.now, self.now + LEASE
        for one in self.executions.values():
            one.lease, one.stop_sent = self.now + LEASE, False
        for queue in self.queues.values():
            if queue.rate is not None:
                queue.tokens, queue.filled_at = Fraction(queue.rate[0]), self.now
        for job in self.jobs.values():
            if job.unmet:
                job.unmet = [edge for edge in job.after if self.jobs[edge[0]].state not in FINAL]

    def leave(self, worker: Worker) -> None:
        self.close(worker)
        for one in self.executions_of(worker):
            self.lose(one)
        worker.state = "offline"

    # Time

    def pass_time(self) -> None:
        """Ends and releases everything that is due."""
        for job in list(self.jobs.values()):
            if job.state in WAITING and job.expires_at is not None and job.expires_at <= self.now:
                self.end(job, "expired", "expires_at")
        for job in self.jobs.values():
            if job.state == "pending" and not job.unmet:
                self.begin(job)
        for worker in self.workers.values():
            for one in self.executions_of(worker):
                if one.lease <= self.now:
                    self.lose(one)
            if worker.state != "offline" and worker.look_at <= self.now:
                self.look_at(worker)
            if worker.poll is not None and worker.poll.until <= self.now:
                worker.poll.answer = True

    def look_at(self, worker: Worker) -> None:
        """Checks a worker: one that is silent and holds nothing is offline."""
        times = [worker.seen + LEASE, *(one.lease for one in self.executions_of(worker))]
        later = [time for time in times if time > self.now]
        if later:
            worker.look_at = min(later)
        else:
            self.close(worker)
            worker.state = "offline"

    def finish_turn(self) -> None:
        """Starts ready jobs on waiting workers, and answers polls."""
        self.dispatch()
        for worker in self.workers.values():
            poll = worker.poll
            if poll is not None and (poll.answer or poll.orders):
                for one in self.executions_of(worker):
                    if one.job.id in poll.orders:
                        one.lease = self.now + LEASE
                    one.stop_sent = one.stop_sent or one.stop_at is not None
                self.close(worker)

    def next_due(self) -> int | None:
        """Time at which something happens by itself next."""
        times = [one.lease for one in self.executions.values()]
        for job in self.jobs.values():
            if job.state in WAITING and job.expires_at is not None:
                times.append(job.expires_at)
            start = job.due if job.due is not None else job.run_at
            if job.state == "pending" and not job.unmet and start is not None:
                times.append(start)
        for worker in self.workers.values():
            if worker.poll is not None:
                times.append(worker.poll.until)
            if worker.state != "offline":
                times.append(worker.look_at)
        return min(times, default=None)


def accepted(when: str, state: str) -> bool:
    """Whether this end of an upstream job meets the dependency."""
    return when == "finished" or when == state
