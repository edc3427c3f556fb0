"""Alerts page: rules, firing alerts, silences, channels and deliveries."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Site

FIRES_MS = 40_000
"""The leader looks every ten seconds; shared cores stall."""


class Receiver(BaseHTTPRequestHandler):
    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(Receiver.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keeps the test's output free of log lines."""


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.status = 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alerts"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clean(site: Site) -> Iterator[None]:
    yield
    site.http.delete("/alerts/tiny-disk")
    site.http.delete("/alert-channels/pager")


def set_up_channel(page: Page, receiver: str) -> None:
    page.get_by_role("button", name="New channel", exact=True).click()
    page.get_by_label("Name", exact=True).fill("pager")
    page.get_by_label("Address: https://").fill(receiver)
    page.get_by_role("button", name="Create channel").click()
    channel = page.get_by_role("table", name="Channels").locator("tr", has_text="pager")
    expect(channel.get_by_text("never")).to_be_visible()
    Receiver.status = 503
    channel.get_by_role("button", name="Test", exact=True).click()
    expect(page.get_by_text("Sending to pager failed: it answered 503")).to_be_visible()
    expect(channel.get_by_text("it answered 503")).to_be_visible()


def make_rule(page: Page) -> None:
    page.get_by_role("button", name="New rule").click()
    page.get_by_label("Name", exact=True).fill("tiny-disk")
    page.get_by_label("Condition").select_option("disk_low")
    page.get_by_label("From, in bytes").fill("1e17")
    expect(page.get_by_text("Now: the condition is true.")).to_be_visible()
    expect(page.get_by_text("It would notify pager.")).to_be_visible()
    page.get_by_role("button", name="Create rule").click()
    expect(page.get_by_role("heading", name="tiny-disk")).to_be_visible()


def silence_for_a_moment(page: Page) -> None:
    page.get_by_role("button", name="Silence", exact=True).click()
    page.get_by_label("Duration, such as").fill("30m")
    page.get_by_label("Reason").fill("known")
    page.get_by_role("button", name="Silence alert").click()
    expect(page.get_by_text("tiny-disk is silenced for 30m.")).to_be_visible()
    expect(page.locator("h1").get_by_text("silenced")).to_be_visible()
    page.get_by_role("button", name="End silence", exact=True).click()
    expect(page.locator("h1").get_by_text("silenced")).to_have_count(0)


@pytest.mark.usefixtures("clean")
def test_a_rule_is_created_fires_is_silenced_and_notifies(
    site: Site, open_page: Open, receiver: str
) -> None:
    page = open_page("/ui/alerts")
    expect(page.get_by_text("No notification channels yet.")).to_be_visible()
    set_up_channel(page, receiver)
    make_rule(page)

    # It fires at the next look, and the address does not take it.
    expect(page.locator("h1").get_by_text("firing")).to_be_visible(timeout=FIRES_MS)
    row = page.get_by_role("table", name="Notifications").locator("tbody tr").first
    expect(row).to_contain_text(re.compile(r"pager not delivered yet.*: it answered 503, again in"))

    page.goto("/")
    page.get_by_label("Needs attention").get_by_role("link", name="tiny-disk").click()
    silence_for_a_moment(page)

    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_label("From, in bytes").fill("1")
    page.get_by_role("button", name="Save rule").click()
    expect(page.get_by_text("Rule changed.")).to_be_visible()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    expect(page.get_by_role("link", name="tiny-disk", exact=True)).to_have_count(0)
    expect(page.get_by_role("table", name="Notifications")).to_contain_text("tiny-disk")


def test_a_viewer_sees_alert_rules_and_no_buttons(site: Site, open_page: Open) -> None:
    token = site.ask("POST", "/tokens", {"role": "viewer", "name": "alert looker"})["token"]
    page = open_page("/ui/alerts", token=token)
    expect(page.get_by_role("link", name="disk_low", exact=True)).to_be_visible()
    for name in ("New rule", "New channel", "Silence"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
