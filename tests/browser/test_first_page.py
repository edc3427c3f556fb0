"""Size and loading time of the first page: figures, printed with `-rP`."""

from __future__ import annotations

from statistics import median
from typing import Any

from tests.browser.conftest import Open

FIRST_PAGE_BYTES_MAX = 300_000
TIMES = 5
WATCH = """
new MutationObserver((_, watch) => {
  // The figures are there, and with them everything that can be pressed.
  if (!document.querySelector('dl.cards dd')) return;
  window.usableAt = performance.now();
  watch.disconnect();
}).observe(document, {childList: true, subtree: true});
"""
SENT = """() => [
  ...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')
].filter((one) => !one.name.includes('/stream')).map((one) => [one.name, one.encodedBodySize])"""


def first_look(open_page: Open) -> tuple[float, dict[str, Any]]:
    """Loads the page with an empty cache; returns milliseconds until it is usable, and the bytes
    sent."""
    page = open_page("/healthz")
    page.add_init_script(WATCH)
    page.goto("/")
    page.wait_for_function("() => window.usableAt !== undefined")
    return page.evaluate("() => window.usableAt"), dict(page.evaluate(SENT))


def test_the_first_page_is_small_and_reports_its_loading_time(open_page: Open) -> None:
    looks = [first_look(open_page) for _ in range(TIMES)]
    taken, sizes = [one for one, _ in looks], looks[-1][1]
    whole = sum(sizes.values())
    shown = ", ".join(f"{one:.0f}" for one in taken)
    print(  # noqa: T201  (pytest shows it)
        f"first page: {whole / 1000:.0f} kB compressed, in {len(sizes)} answers; "
        f"usable after {median(taken):.0f} ms (median of {shown})"
    )
    assert 0 < whole < FIRST_PAGE_BYTES_MAX, sizes
