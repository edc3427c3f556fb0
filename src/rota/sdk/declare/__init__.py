"""Declarations of a program: functions as jobs, schedules, triggers; and runs without a server."""
