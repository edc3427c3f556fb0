"""What can be asked beside jobs, as values and as methods of both clients: schedules, events,
files, policy.
"""
