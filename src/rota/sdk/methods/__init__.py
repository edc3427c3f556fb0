"""Calls of the API by subject (schedules, events, files, administration) as values, and paging
through lists.
"""
