"""Real processes: a traced caller, a server that exports, a job whose own span joins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

from tests.process.cell import Cell, shell, until

pytestmark = pytest.mark.process


class Collector:
    """Takes OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        self.services: set[str] = set()
        outer = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for one in request.resource_spans:
            named = {key.key: key.value.string_value for key in one.resource.attributes}
            self.services.add(named["service.name"])
            for scope in one.scope_spans:
                self.spans.update({span.name: span for span in scope.spans})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def test_a_trace_goes_from_the_caller_through_the_server_into_the_job(
    cell: Cell, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    cell.up("--workers", "1")
    client = cell.client()
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    with tracer.start_as_current_span("order") as caller:
        job = client.submit(shell(f'echo "$TRACEPARENT" > {cell.folder}/seen', "bill"))
    cell.until_status(client, job.job_id, "succeeded")
    until(lambda: {"job bill", "submit bill", "wait bill", "run bill"} <= set(collector.spans), "")
    context = caller.get_span_context()
    whole, run = collector.spans["job bill"], collector.spans["run bill"]
    assert int.from_bytes(whole.trace_id, "big") == context.trace_id
    assert int.from_bytes(whole.parent_span_id, "big") == context.span_id
    assert run.parent_span_id == whole.span_id
    seen = (cell.folder / "seen").read_text().strip()
    assert seen == f"00-{run.trace_id.hex()}-{run.span_id.hex()}-01"
    assert collector.services == {"rota"}
