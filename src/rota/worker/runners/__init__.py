"""Runners for each kind of task: programs, containers, Python functions, HTTP requests."""
