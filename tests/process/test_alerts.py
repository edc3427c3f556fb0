"""Alerts of a real server: it notices by itself that a job failed for good, and sends a
notification."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.process.cell import Cell, shell, until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_server_notifies_of_a_dead_letter_once_even_after_a_restart(
    cell: Cell,
) -> None:
    notifications: list[dict[str, object]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notifications.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        cell.up("--workers", "1")
        url = f"http://127.0.0.1:{listener.server_port}/"
        assert cell.run("alerts", "channels", "set", "ops", "--url", url).returncode == 0
        client = cell.client()
        job = client.submit(shell("exit 1"))
        cell.until_status(client, job.job_id, "failed")
        until(lambda: notifications, "a notice")
        assert [(one["rule"], one["status"]) for one in notifications] == [
            ("dead_letters", "firing")
        ]
        cell.server.stop()
        cell.up()
        shown = cell.http().get("/alerts", params={"status": "firing"}).json()["items"]
        assert [one["name"] for one in shown] == ["dead_letters"]
        assert len(notifications) == 1
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
