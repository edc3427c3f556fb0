"""Runs a cell on this machine to try failures: PostgreSQL, three servers, workers, a load balancer.

Everything listens on loopback and is in a temporary folder. Processes that are killed are started
again after some seconds, as by a service manager. Ctrl-C stops everything and removes the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
import psutil

from tests.chaos.proxy import Proxy
from tests.postgres.server import PostgresServer
from tests.process.cell import UP, Daemon, until

SERVERS = 3
WORKERS = 3
LOOK_S = 1.0
BACK_AFTER_S = 5.0
"""Long enough to see that the others do without it."""
HAPROXY = """
global
    maxconn 4096
defaults
    mode http
    timeout connect 2s
    timeout client 75s
    timeout server 75s
    option redispatch
    retries 3
frontend rota
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1
    default-server check inter 1s fall 2 rise 1
{servers}
"""


class Part:
    def __init__(self, name: str, args: Sequence[str], cell: LocalCell) -> None:
        self.name = name
        self.args = args
        self._cell = cell
        self._gone_at: float | None = None
        self.daemon = self._start()

    def _start(self) -> Daemon:
        return Daemon(self.args, self._cell.env, self._cell.folder / f"{self.name}.log")

    def tend(self) -> None:
        """Starts the process again some seconds after its end."""
        if not self.daemon.ended():
            return
        now = time.monotonic()
        if self._gone_at is None:
            self._gone_at = now
            say(f"{self.name} ({self.daemon.pid}) ended; starting again in {BACK_AFTER_S:g} s")
        elif now > self._gone_at + BACK_AFTER_S:
            self._gone_at = None
            self.daemon = self._start()
            say(f"{self.name} runs again as {self.daemon.pid}")


class LocalCell:
    def __init__(self, port: int) -> None:
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix="rota-cluster-"))
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        self.parts: list[Part] = []
        self.token = ""
        self._balancer: Proxy | subprocess.Popen[bytes] | None = None
        say("starting PostgreSQL ...")
        self.postgres = PostgresServer({"max_connections": "100"}, quick=False)
        self.dsn = self.postgres.dsn(self.postgres.new_database())

    @property
    def ports(self) -> list[int]:
        return [self.port + number for number in range(1, SERVERS + 1)]

    def start(self) -> None:
        self.token = self._first_token()
        self.env["ROTA_TOKEN"] = self.token
        say(f"starting {SERVERS} servers ...")
        for number, port in enumerate(self.ports, start=1):
            data = str(self.folder / f"n{number}")
            args = ("--store", self.dsn, "--port", str(port), "--node", f"n{number}")
            self.parts.append(Part(f"n{number}", ("server", *args, "--data", data), self))
        for part in self.parts:
            self._until_up(part)
        self._start_balancer()
        urls = [word for port in self.ports for word in ("--server", f"http://127.0.0.1:{port}")]
        for number in range(1, WORKERS + 1):
            place = str(self.folder / "work")
            args = ("--name", f"w{number}", "--cpu", "4", "--work-dir", place)
            self.parts.append(Part(f"w{number}", ("worker", *urls, *args), self))

    def _first_token(self) -> str:
        made = subprocess.run(
            [sys.executable, "-m", "rota", "tokens", "create", "--store", self.dsn,
             "--role", "admin", "--json"],
            env=self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise SystemExit(made.stderr)
        return str(json.loads(made.stdout)["token"])

    def _until_up(self, part: Part) -> None:
        until(lambda: UP in part.daemon.text() or part.daemon.ended(), f"{part.name} that is up")
        if part.daemon.ended():
            raise SystemExit(part.daemon.text())

    def _start_balancer(self) -> None:
        haproxy = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if haproxy is None:
            say("no haproxy here (apt install haproxy): using a simple TCP load balancer instead")
            self._balancer = Proxy(*self.ports, port=self.port)
            return
        servers = "\n".join(
            f"    server n{number} 127.0.0.1:{port}"
            for number, port in enumerate(self.ports, start=1)
        )
        config = self.folder / "haproxy.cfg"
        config.write_text(HAPROXY.format(port=self.port, servers=servers))
        with (self.folder / "haproxy.log").open("wb") as output:
            self._balancer = subprocess.Popen(
                [haproxy, "-db", "-f", str(config)], stdout=output, stderr=output
            )

    def show(self) -> None:
        url = f"http://127.0.0.1:{self.port}"
        lines = [
            "",
            f"The cell is up. Its balancer is at {url}; in another terminal:",
            "",
            f"  export ROTA_URL={url} ROTA_TOKEN={self.token}",
            "  rota cluster                                who leads",
            "  rota submit --follow -- echo hello          a job",
            "  rota submit -- sleep 60                     a job to watch during failures",
            "  rota top                                    everything, live",
            "",
            *(f"  {part.name:3} {part.daemon.pid:7}  {self._place(part)}" for part in self.parts),
            f"  db  {self.postgres.pid:7}  {self.dsn}",
            "",
            "Break it: kill -9 PID of the leader, kill -STOP PID and later -CONT, kill -9 of all",
            f"three, of a worker, of the database. Logs are in {self.folder}.",
            "Ctrl-C stops everything and removes that folder.",
            "",
        ]
        print("\n".join(lines), flush=True)

    def _place(self, part: Part) -> str:
        if part.name.startswith("n"):
            return f"server  http://127.0.0.1:{self.port + int(part.name[1:])}"
        return "worker"

    def run(self) -> None:
        """Restarts processes and prints the leader, until interrupted."""
        led = ""
        while True:
            for part in self.parts:
                part.tend()
            self._tend_database()
            now = self._leader()
            if now != led:
                say(f"leader: {now}")
                led = now
            time.sleep(LOOK_S)

    def _tend_database(self) -> None:
        if psutil.pid_exists(self.postgres.pid):
            return
        say(f"the database ended; starting again in {BACK_AFTER_S:g} s")
        time.sleep(BACK_AFTER_S)
        self.postgres.start()
        say(f"the database runs again as {self.postgres.pid}")

    def _leader(self) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        for port in self.ports:
            try:
                view = httpx2.get(
                    f"http://127.0.0.1:{port}/cluster", headers=headers, timeout=1.0
                ).json()
            except (httpx2.HTTPError, ValueError):
                continue
            if view.get("leader"):
                return f"{view['leader']}, epoch {view['epoch']}"
        return "none"

    def close(self) -> None:
        """Stops workers first, then servers, load balancer and database."""
        for kind in ("w", "n"):
            for part in self.parts:
                if part.name.startswith(kind) and not part.daemon.ended():
                    # Twice means hurry: jobs are given back, not waited for. One may be frozen.
                    for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGTERM):
                        part.daemon.signal(number)
            for part in self.parts:
                if part.name.startswith(kind):
                    part.daemon.wait()
        if isinstance(self._balancer, Proxy):
            self._balancer.close()
        elif self._balancer is not None:
            self._balancer.terminate()
            self._balancer.wait()
        self.postgres.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=7070, help="the balancer's; servers follow")
    cell = LocalCell(options.parse_args().port)
    try:
        cell.start()
        cell.show()
        cell.run()
    except KeyboardInterrupt:
        say("stopping ...")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one is enough: it is stopping
        cell.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
