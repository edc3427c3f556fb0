"""Commands about what submits jobs: schedules, calendars, triggers, events and webhooks."""
