"""Calls about what makes jobs by itself: schedules and calendars, triggers, events and webhooks."""
