"""The writes that bring a job as a whole."""

from __future__ import annotations

from rota.core.model import JobId, Life, Spec
from rota.core.records.write import Write


class PutJob(Write, frozen=True, tag="j"):
    """A job as a whole: new, or its spec changed."""

    id: JobId
    spec: Spec
    life: Life


class PutGroup(PutJob, frozen=True, tag="jb"):
    """The same of an array, a gang or a member of one.

    A name of its own, so that a program that knows of none does not take it for a plain job.
    """
