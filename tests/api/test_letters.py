"""Answers to a worker's poll are encoded before they are durable, and sent as soon as they are."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from rota.api.letters import Letter, note_line
from rota.core.model import PollId
from rota.core.outcome import PollAnswer
from rota.store.sqlite.memory import MemoryStore
from tests.api.in_process_server import InProcessServer, open_server
from tests.stand_in import stand_in


class Counter:
    """Connection that keeps what is posted."""

    def __init__(self, head: bytes = b"HTTP/1.1 200 OK\r\n") -> None:
        self.posted: list[bytes] = []
        self._head = head

    def head(self, scope: Scope) -> bytes:
        return self._head

    def post(self, scope: Scope, answer: bytes) -> None:
        self.posted.append(answer)


def letter_to(server: InProcessServer, counter: Counter) -> Letter:
    scope: dict[str, Any] = {}
    note_line(scope, weakref.ref(counter))
    return Letter(server.deps, scope)


ANSWER = PollAnswer(poll_id=PollId(1))


async def test_a_posted_answer_equals_the_usual_answer(server: InProcessServer) -> None:
    counter = Counter()
    letter = letter_to(server, counter)
    letter.write(ANSWER)
    assert not counter.posted
    letter.post(ANSWER)
    ((head, _, body),) = [one.partition(b"\r\n\r\n") for one in counter.posted]
    assert body == letter.text_of(ANSWER)
    posted = dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])
    assert int(posted.pop("content-length")) == len(body)
    worker = await server.register()
    usual = await server.http.post(f"/workers/{worker}/lease", json={"max": 1, "wait": "0s"})
    assert usual.status_code == 200
    assert posted == {name: value for name, value in usual.headers.items() if name in posted}
    assert set(usual.headers) - set(posted) == {"content-length"}


async def test_only_an_encoded_answer_is_posted(server: InProcessServer) -> None:
    counter = Counter()
    letter = letter_to(server, counter)
    letter.post(ANSWER)
    letter.write(ANSWER)
    letter.post(PollAnswer(poll_id=PollId(1)))
    assert not counter.posted, "another one that only looks like it"


async def test_an_answer_that_cannot_be_posted_goes_through_the_framework(
    server: InProcessServer,
) -> None:
    closing, large = Counter(head=b""), Counter()
    for counter, limit in ((closing, 1_000_000), (large, 10)):
        server.limit(answer_piece_bytes=limit)
        letter = letter_to(server, counter)
        letter.write(ANSWER)
        letter.post(ANSWER)
        assert not counter.posted
        assert letter.text_of(ANSWER)


async def test_a_closed_connection_is_not_kept_alive_by_its_request(
    server: InProcessServer,
) -> None:
    counter = Counter()
    letter = letter_to(server, counter)
    letter.write(ANSWER)
    del counter
    gc.collect()
    letter.post(ANSWER)


async def test_a_waiting_worker_with_an_older_registration_gets_409() -> None:
    counter, store = Counter(), MemoryStore()
    append = store.journal.append

    async def slowly(*record: Any) -> Any:
        await asyncio.sleep(0.01)
        return await append(*record)

    store.journal = stand_in(store.journal, append=slowly)
    async with open_server(store=store) as server:
        worker = await server.register()

        def connected(app: ASGIApp) -> ASGIApp:
            async def call(scope: Scope, receive: Receive, send: Send) -> None:
                note_line(scope, weakref.ref(counter))
                await app(scope, receive, send)

            return call

        server.http._transport.app = connected(server.app)  # type: ignore[attr-defined]  # in place of sockets
        lease = server.http.post(f"/workers/{worker}/lease", json={"max": 1, "wait": "5s"})
        waiting = asyncio.create_task(lease)
        await asyncio.sleep(0.05)
        await server.register(worker_id=worker)
        assert (await waiting).status_code == 409
        assert not counter.posted, "it was told that all is well"


async def test_a_posted_answer_arrives_before_the_call_has_returned() -> None:
    counter, store = Counter(), MemoryStore()
    append = store.journal.append

    async def slowly(*record: Any) -> Any:
        await asyncio.sleep(0.01)
        assert not counter.posted, "it is not durable yet"
        return await append(*record)

    store.journal = stand_in(store.journal, append=slowly)
    async with open_server(store=store) as server:
        worker = await server.register()
        shown: list[int] = []

        def connected(app: ASGIApp) -> ASGIApp:
            async def call(scope: Scope, receive: Receive, send: Send) -> None:
                note_line(scope, weakref.ref(counter))

                async def noted(message: Any) -> None:
                    shown.append(len(counter.posted))
                    await send(message)

                await app(scope, receive, noted if scope["path"].endswith("/lease") else send)

            return call

        server.http._transport.app = connected(server.app)  # type: ignore[attr-defined]  # in place of sockets
        waiting = asyncio.create_task(server.lease(worker, wait="5s"))
        await asyncio.sleep(0.05)
        await server.submit()
        (order,) = (await waiting)["executions"]
        assert order["execution_id"].encode() in counter.posted[0]
        assert shown == [1, 1]
