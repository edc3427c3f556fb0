"""Reservations: keep free capacity for jobs that do not fit yet."""
