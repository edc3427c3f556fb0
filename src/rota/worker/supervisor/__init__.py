"""Supervisor: one process beside each agent, which starts all jobs and ends them."""
