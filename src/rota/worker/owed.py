"""Reports that no server has heard yet: which are under way, and which one is at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rota.wire.executions import NOTHING, CompletedReport
from rota.wire.limits import LEASE_REPORTS_MAX
from rota.worker.reports import report_failed

REPORT_BYTES_PER_CALL_MAX = 8 * 1024 * 1024
"""Results and errors carried by one call; far below the largest body a server reads."""


class PendingReports:
    """Reports by execution, the oldest first."""

    def __init__(self) -> None:
        self._reports: dict[str, CompletedReport] = {}
        self._in_flight: dict[str, None] = {}
        """Those that an open call carries."""
        self._batch_max = LEASE_REPORTS_MAX

    def __len__(self) -> int:
        return len(self._reports)

    def __contains__(self, key: str) -> bool:
        return key in self._reports

    def __iter__(self) -> Iterator[str]:
        return iter(self._reports)

    @property
    def unsent(self) -> int:
        """How many no call carries now."""
        return len(self._reports) - len(self._in_flight)

    def add(self, report: CompletedReport) -> None:
        """One more."""
        self._reports[report.execution_id] = report

    def take_batch(self) -> list[CompletedReport]:
        """As many as a call may carry; they are under way."""
        reports: list[CompletedReport] = []
        size = 0
        for key, report in self._reports.items():
            if key in self._in_flight:
                continue
            size += _size(report.result) + _size(report.error)
            if len(reports) >= self._batch_max or (reports and size > REPORT_BYTES_PER_CALL_MAX):
                break
            reports.append(report)
        self._in_flight.update((report.execution_id, None) for report in reports)
        return reports

    def forget(self, key: str) -> bool:
        """The server has heard it, or does not want it; False: it was not owed."""
        self._in_flight.pop(key, None)
        return self._reports.pop(key, None) is not None

    def call_accepted(self) -> None:
        """A call was taken as it was."""
        self._batch_max = LEASE_REPORTS_MAX

    def failed(self, keys: Iterable[str]) -> None:
        """Their call was not answered: they are to be sent again."""
        for key in keys:
            self._in_flight.pop(key, None)

    def all_calls_closed(self) -> None:
        """No call is open any more."""
        self._in_flight.clear()

    def isolate_refused(self, carried: Sequence[str], detail: str) -> str | None:
        """The server refuses a call that carried these; the one that is to be given up, if any.

        Halving the batch finds the report at fault; alone, its result is given up for an error.
        """
        if len(carried) > 1:
            self._batch_max = max(1, len(carried) // 2)
            return None
        report = self._reports.get(carried[0])
        if report is None or report.status == "returned" or _is_bare_failure(report):
            return carried[0]
        message = f"the server refused the report of this execution: {detail}"
        self.add(report_failed(report.execution_id, report.fence, message))
        return None


def _size(said: msgspec.Raw) -> int:
    return 0 if said is NOTHING else len(bytes(said))


def _is_bare_failure(report: CompletedReport) -> bool:
    return report.status == "failed" and bytes(report.result) == b"null"
