"""What a step does with each input: of people about jobs, schedules and triggers, of workers, of
the clock.
"""
