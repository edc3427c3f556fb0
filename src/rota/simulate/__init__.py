"""REPLAYS. Runs the scheduler under virtual time on a workload and a fleet that need not exist."""
