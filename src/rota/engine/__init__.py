"""Runs the scheduler: drains the inbox, decides a turn, appends it to the journal, then releases
the answers.
"""
