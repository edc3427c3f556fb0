"""Records written before affinity and usage existed are read; spill queues keep their numbers."""

from __future__ import annotations

import msgspec

from rota.core.ids import spill_queue_number
from rota.core.model import Affinity, Execution, Needs, RetryPolicy, RuntimeStats, Worker
from tests.core.asking import resources

NUMBER = 9013295130692436460


def shortened(record: object, fields: int) -> bytes:
    """As it was written when it had only so many fields."""
    return msgspec.msgpack.encode(msgspec.to_builtins(record)[:fields])


def test_needs_without_affinity_are_read() -> None:
    needs = Needs(resources(cpu=2), ("linux",))
    assert msgspec.msgpack.decode(shortened(needs, 2), type=Needs) == needs


def test_a_retry_policy_without_memory_is_read() -> None:
    policy = RetryPolicy(max_attempts=4, jitter=0.5)
    assert msgspec.msgpack.decode(shortened(policy, 6), type=RetryPolicy) == policy


def test_a_worker_without_labels_is_read() -> None:
    found = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["w1", "box", "s1", [4000, 0, 0, 0, []], [], None, "online", 5]),
        type=Worker,
    )
    assert (found.labels, found.only, found.registered_at) == ((), (), 5)


def test_an_execution_without_its_memory_is_read() -> None:
    found = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["x1", "j1", "w1", 1, 1, "claimed", 5]), type=Execution
    )
    assert found.memory == 0


def test_run_times_without_usage_are_read() -> None:
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(["t", "n", [5, 6]]), type=RuntimeStats)
    assert found == RuntimeStats("t", "n", (5, 6))


def test_spill_queues_keep_their_numbers() -> None:
    """Stored numbers: with another one, spilled jobs would not be found."""
    needs = Needs(resources(cpu=1, memory=1 << 20), ("linux",))
    assert spill_queue_number(("default", needs, 0, "default", -1)) == NUMBER
    wish = Needs(needs.resources, needs.capabilities, Affinity(spread="host"))
    assert spill_queue_number(("default", wish, 0, "default", -1)) != NUMBER
