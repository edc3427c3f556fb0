"""What a program declares: functions as jobs, schedules and triggers beside them, runs without a
server.
"""
