"""Definition of a store: logs and artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rota.core.model import ExecutionId, ExecutionState, JobId
from rota.core.outcome import DropJob
from rota.store.protocol import (
    Artifact,
    ArtifactNameError,
    ArtifactTooLargeError,
    LogPage,
)
from tests.store.conformance import StoreMaker, leading, project_all, put, run_of

RUN = ExecutionId("execution-0001")
LOG_CAP = 100_000
"""What `make_store` gives the logs; more than one row's worth."""


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Polls until a deadline for what happens after a projection without a signal of its own."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110  (the store has no event for this)
            await asyncio.sleep(0.005)


class LogsConformance:
    """Bulk text, uploaded in any order of repeats."""

    async def test_a_log_is_read_back_from_any_offset(self, make_store: StoreMaker) -> None:
        text = bytes(range(256)) * 300
        async with make_store() as store:
            assert await store.logs.append(RUN, 0, text[:10]) == 10
            assert await store.logs.append(RUN, None, text[10:]) == len(text)
            for offset, limit in ((0, 10), (5, 70_000), (65_535, 3), (76_799, 10), (76_800, 10)):
                page = await store.logs.read(RUN, offset, limit)
                wanted = text[offset : offset + limit]
                assert page == LogPage(wanted, offset + len(wanted), len(text))

    async def test_a_log_without_output_is_empty(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert await store.logs.read(RUN, 0, 10) == LogPage(b"", 0, 0)

    async def test_a_repeated_upload_changes_nothing(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.logs.append(RUN, 0, b"hello ")
            assert await store.logs.append(RUN, 0, b"hello ") == 6
            assert await store.logs.append(RUN, 3, b"lo world") == 11
            assert await store.logs.append(RUN, 2, b"XX") == 11
            assert (await store.logs.read(RUN, 0, 99)).data == b"hello world"

    async def test_an_upload_past_the_end_gets_the_offset_to_go_on_from(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.logs.append(RUN, 0, b"hello")
            assert await store.logs.append(RUN, 9, b"late") == 5
            assert (await store.logs.read(RUN, 0, 99)).data == b"hello"

    async def test_past_the_cap_bytes_are_counted_and_left_out(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.logs.append(RUN, 0, b"a" * (LOG_CAP - 1))
            assert await store.logs.append(RUN, LOG_CAP - 1, b"bcd") == LOG_CAP + 2
            assert await store.logs.append(RUN, LOG_CAP - 1, b"bcd") == LOG_CAP + 2
            assert await store.logs.append(RUN, None, b"e") == LOG_CAP + 3
            page = await store.logs.read(RUN, LOG_CAP - 2, 99)
        assert page == LogPage(b"ab", LOG_CAP, LOG_CAP, 3)

    async def test_deleting_a_job_deletes_its_logs_and_artifacts(
        self, make_store: StoreMaker
    ) -> None:
        other = ExecutionId("execution-0002")
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1), run_of(1, ExecutionState.SUCCEEDED), put(2), run_of(2))
            for execution_id in (RUN, other):
                await store.logs.append(execution_id, 0, b"text")
                await store.artifacts.write(execution_id, "out", stream(b"data"), 10)
            await leader.append(DropJob(JobId("job-0001")))
            await project_all(store)

            async def gone() -> bool:
                page = await store.logs.read(RUN, 0, 99)
                return page.size == 0 and not await store.artifacts.list(RUN)

            await eventually(gone)
            assert (await store.logs.read(other, 0, 99)).data == b"text"
            assert await store.artifacts.list(other) == [Artifact("out", 4)]


class ArtifactsConformance:
    """Output files."""

    async def test_a_file_is_kept_and_read_back(self, make_store: StoreMaker) -> None:
        content = b"x" * 300_000
        async with make_store() as store:
            kept = await store.artifacts.write(RUN, "b.txt", stream(content, b"end"), 1_000_000)
            await store.artifacts.write(RUN, "a.txt", stream(), 10)
            assert kept == Artifact("b.txt", 300_003)
            assert await store.artifacts.list(RUN) == [Artifact("a.txt", 0), kept]
            each = await store.artifacts.list_each([ExecutionId("other"), RUN, RUN])
            assert each == [[], [Artifact("a.txt", 0), kept], [Artifact("a.txt", 0), kept]]
            pieces = await store.artifacts.read(RUN, "b.txt")
            assert pieces is not None
            assert b"".join([piece async for piece in pieces]) == content + b"end"
            assert await store.artifacts.read(RUN, "c.txt") is None

    async def test_a_file_in_folders_is_kept_under_its_whole_name(
        self, make_store: StoreMaker
    ) -> None:
        names = ["a", "a-b", "a/b", "a/b/c", "plots/é.png", "/".join("abcdefghijklmnop")]
        async with make_store() as store:
            # None is in the way of another, though a folder could not be a file as well.
            for name in reversed(names):
                await store.artifacts.write(RUN, name, stream(name.encode()), 100)
            listed = await store.artifacts.list(RUN)
            assert [one.name for one in listed] == sorted(names)
            for name in names:
                pieces = await store.artifacts.read(RUN, name)
                assert pieces is not None
                assert b"".join([piece async for piece in pieces]) == name.encode()
            await store.artifacts.forget([RUN])
            assert await store.artifacts.list(RUN) == []

    async def test_a_second_upload_replaces_the_first(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.artifacts.write(RUN, "out", stream(b"long ago"), 10)
            await store.artifacts.write(RUN, "out", stream(b"now"), 10)
            assert await store.artifacts.list(RUN) == [Artifact("out", 3)]

    async def test_a_slow_file_is_unharmed_by_one_that_came_later(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:

            async def slow() -> AsyncIterator[bytes]:
                yield b"x" * 600_000
                await store.artifacts.write(RUN, "quick", stream(b"quick"), 1_000_000)
                yield b"y"

            await store.artifacts.write(RUN, "slow", slow(), 1_000_000)
            pieces = await store.artifacts.read(RUN, "slow")
            assert pieces is not None
            assert b"".join([piece async for piece in pieces]) == b"x" * 600_000 + b"y"

    async def test_a_file_over_the_cap_leaves_nothing(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            with pytest.raises(ArtifactTooLargeError):
                await store.artifacts.write(RUN, "out", stream(b"12345", b"678901"), 10)
            assert await store.artifacts.list(RUN) == []

    async def test_an_upload_that_breaks_off_leaves_nothing(self, make_store: StoreMaker) -> None:
        async def torn() -> AsyncIterator[bytes]:
            yield b"half"
            raise ConnectionResetError

        async with make_store() as store:
            with pytest.raises(ConnectionResetError):
                await store.artifacts.write(RUN, "out", torn(), 10)
            assert await store.artifacts.list(RUN) == []

    @pytest.mark.parametrize(
        "name",
        [
            *("", ".", "..", ".hidden", "a\\b", "a\x00b", "a\nb", "x" * 256, "\ud800"),
            *("/a", "a/", "a//b", "a/../b", "../a", "a/.b", "./a", "a/b\\c", "a/" * 16 + "b"),
            "/".join(["x" * 100] * 3),
        ],
    )
    async def test_a_name_that_could_lead_elsewhere_is_refused(
        self, make_store: StoreMaker, name: str
    ) -> None:
        async with make_store() as store:
            with pytest.raises(ArtifactNameError):
                await store.artifacts.write(RUN, name, stream(b"data"), 10)
            with pytest.raises(ArtifactNameError):
                await store.artifacts.read(RUN, name)
