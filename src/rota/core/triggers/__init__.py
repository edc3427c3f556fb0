"""Triggers: the index by event type, matching of events, debounce windows, commands."""
