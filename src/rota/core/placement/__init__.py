"""Placement: decides where a job goes, by feasibility, free capacity and affinity."""
