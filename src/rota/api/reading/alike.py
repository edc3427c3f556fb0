"""Reads the jobs of a batch: of those written alike, one after the other, only the first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.wire.jobs import BatchJobSpec, BatchSpec
from rota.wire.limits import BATCH_JOBS_MAX
from rota.wire.units import dec_hook


class _RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose jobs are told apart, and no more."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=BATCH_JOBS_MAX)]


_decode_raw_batch = msgspec.json.Decoder(_RawBatch).decode
_decode_batch_job = msgspec.json.Decoder(BatchJobSpec, dec_hook=dec_hook).decode
_decode_batch = msgspec.json.Decoder(BatchSpec, dec_hook=dec_hook).decode


def read_batch(body: bytes) -> BatchSpec:
    """The batch. Jobs in a row that were written with the same bytes are one and the same object.

    So whatever is made of a job can be had again for its neighbour, which is known by itself.
    """
    try:
        return BatchSpec(jobs=_batch_jobs(_decode_raw_batch(body).jobs))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Where in the batch it is wrong, only a reader of all of it can tell.
        return _decode_batch(body)


def _batch_jobs(rows: Iterable[msgspec.Raw]) -> list[BatchJobSpec]:
    jobs: list[BatchJobSpec] = []
    job, last = None, None
    for row in rows:
        if job is None or row != last:
            job, last = _decode_batch_job(row), row
        jobs.append(job)
    return jobs
