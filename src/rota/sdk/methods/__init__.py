"""Calls of the API by subject (schedules, events, files, administration), and paging."""
