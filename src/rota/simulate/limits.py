"""Every limit of the simulator, named, with its reason."""

LINE_BYTES_MAX = 1 << 20
"""Bytes of one line of a trace: what is no trace must not be read as one endless line."""
DOCUMENT_BYTES_MAX = 512 << 20
"""Bytes of a workflow's JSON, unpacked: it is read as a whole."""
TRACE_JOBS_MAX = 20_000_000
"""Jobs of a trace that is read as a whole: some ten gigabytes of memory."""
SPAN_MS_MAX = 1000 * 366 * 86_400_000
"""The longest time in a trace: a thousand years is a slip of the pen."""
PROCESSORS_MAX = 1_000_000_000
"""Processors of one job or one machine; larger figures are slips."""
WORKERS_SIMULATED_MAX = 100_000
"""Workers of a simulated fleet: as many as a cell may have."""
SYNTHETIC_JOBS_MAX = 100_000_000
"""Jobs that are made up: they are never all in memory, but 48 bytes of figures for each are."""
RUNS_MAX = 1_000
"""Shaken repeats of one simulation."""
IDLE_TICKS_MAX = 100_000
"""Wake-ups in a row while nothing runs and nothing is to come: what waits then never starts."""
