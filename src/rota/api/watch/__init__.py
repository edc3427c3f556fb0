"""Calls of those who watch: the overview, the timeline, the stream of changes, alerts."""
