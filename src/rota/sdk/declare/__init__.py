"""Declares what a program has: functions as jobs, their options, schedules and triggers; and runs
them inline, without a server, for tests.
"""
