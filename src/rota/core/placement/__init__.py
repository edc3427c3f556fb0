"""Placement: decides WHERE a job goes, by feasibility, free capacity and affinity."""
