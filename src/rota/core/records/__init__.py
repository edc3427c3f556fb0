"""The records beside model.py: schedules, events, policy and usage, and the shapes of inputs and
writes.
"""
