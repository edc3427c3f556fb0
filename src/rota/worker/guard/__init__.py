"""The guard: one warm process an agent, which starts all jobs and ends them whatever happens."""
