"""Runs a simulation for a server in a process of its own, and ends that process in any case."""

from __future__ import annotations

import asyncio
import os
import sys

import structlog

from rota.api.deps import SimulatorError

log = structlog.get_logger(__name__)

STUDY_S_MAX = 30.0
"""How long a simulation may take: somebody waits for it in front of a page."""
MODULE = "rota.cli.study_main"
REFUSED = 3
"""Its exit status when the study cannot be run; standard error says why, in a line."""
_TOO_LONG = (
    "it was not finished after {:.0f} s: take a shorter time or fewer policies, or use"
    " rota history export and rota simulate, which have no limit"
)


class SimulationProcess:
    """Starts a process for each study: a `Simulator` of the server."""

    def __init__(self, seconds_max: float = STUDY_S_MAX) -> None:
        self._seconds_max = seconds_max

    async def run(self, study: bytes) -> bytes:
        """Returns what the process wrote; it has ended when this returns or raises."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE,
            env=_environment(), start_new_session=True,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds_max):
                outcome, said = await process.communicate(study)
        except TimeoutError as error:
            raise SimulatorError(_TOO_LONG.format(self._seconds_max)) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return _read(process.returncode, outcome, said)


def _environment() -> dict[str, str]:
    """Returns what Python needs, without variables that hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}


def _read(status: int | None, outcome: bytes, said: bytes) -> bytes:
    if status == 0:
        return outcome
    text = said.decode(errors="replace").strip()
    if status == REFUSED:
        raise SimulatorError(text)
    log.error("simulation_failed", status=status, said=text[-2000:])
    raise SimulatorError(f"the simulator ended with status {status}; the server's log says more")
