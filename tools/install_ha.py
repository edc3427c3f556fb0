"""Installs what `make chaos-ha` needs: etcd where it is missing, Patroni into a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON_FILE = "python.txt"
"""Says which Python it was installed for."""
PATRONI = ("patroni[etcd3]>=4.1", "psycopg[binary]>=3.2")


def main(folder: Path) -> int:
    if shutil.which("etcd") is None and not install_etcd():
        return fail("etcd is missing: install it (Debian: apt install etcd-server)")
    python = python_for_anybody()
    if python is None:
        return fail("no Python that a user other than root may run: install python3")
    print(f"Installing Patroni for {python} into {folder} ...")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--upgrade"]
    done = subprocess.run([*pip, "--target", str(folder), *PATRONI], check=False)
    (folder / PYTHON_FILE).write_text(python)
    return done.returncode


def install_etcd() -> bool:
    """Installs etcd, only as root and only with apt."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print("Installing etcd-server ...")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "etcd-server"]):
        if subprocess.run(["apt-get", *words], env=quiet, check=False).returncode:
            return False
    return shutil.which("etcd") is not None


def python_for_anybody() -> str | None:
    """Finds a Python that other users can run: PostgreSQL and Patroni do not run as root."""
    if os.geteuid() != 0:
        return sys.executable
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")


def fail(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
