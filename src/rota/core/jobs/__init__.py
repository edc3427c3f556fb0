"""The life of a job: submitted, waiting, spilled, started, finished, retried, deleted."""
