"""Finds the Chromium of this machine and starts it for tests and pictures."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Nothing of a browser's own business: tests run where nothing outside can be reached."""
MISSING = (
    "no Chromium on this machine. On Debian and Ubuntu: apt install chromium; or name one by "
    "ROTA_CHROMIUM=/path/to/chromium"
)


def find() -> str | None:
    named = os.environ.get("ROTA_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def launch(driver: Playwright) -> Browser:
    path = find()
    if path is None:
        raise SystemExit(MISSING)
    flags = [*FLAGS]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Chromium's own sandbox does not work for root; in a container it often is root.
        flags.append("--no-sandbox")
    return driver.chromium.launch(executable_path=path, args=flags)


def main(arguments: Sequence[str]) -> int:
    """Prints the path of Chromium, or what to do if there is none."""
    del arguments
    path = find()
    print(path or MISSING, file=sys.stdout if path else sys.stderr)
    return 0 if path else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
