"""Schedules: cron and intervals, the index of what is due, firing, misfires, commands."""
