"""Commands about what makes jobs by itself: schedules, cron and calendars, triggers, events and
webhooks.
"""
