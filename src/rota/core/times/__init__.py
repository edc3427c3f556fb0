"""Everything about time: cron and timetables, the agenda of schedules, timers, slack, and words
for it.
"""
