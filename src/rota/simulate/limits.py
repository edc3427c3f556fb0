"""Every limit of the simulator, named, with its reason."""

LINE_BYTES_MAX = 1 << 20
"""Bytes of one line of a trace: a file that is no trace must not be read as one endless line."""
DOCUMENT_BYTES_MAX = 512 << 20
"""Bytes of a workflow's JSON, unpacked: it is read as a whole."""
TRACE_JOBS_MAX = 20_000_000
"""Jobs of a trace that is read as a whole: some ten gigabytes of memory."""
SPAN_MS_MAX = 1000 * 366 * 86_400_000
"""The longest time in a trace: more than a thousand years is an error."""
PROCESSORS_MAX = 1_000_000_000
"""Processors of one job or one machine: more is an error."""
WORKERS_SIMULATED_MAX = 100_000
"""Workers of a simulated fleet: as many as a cell may have."""
SYNTHETIC_JOBS_MAX = 100_000_000
"""Synthetic jobs: they are never all in memory, but 48 bytes of history for each are."""
RUNS_MAX = 1_000
"""Runs of one simulation with shaken arrivals."""
IDLE_TICKS_MAX = 100_000
"""Turns in a row while no job runs and none is to come: jobs that wait then never start."""
