"""Declarations of a program: functions as jobs, their options, schedules and triggers; and inline
runs of them without a server, for tests.
"""
