"""Reads what a request carries, within bounds, and says in plain words what is wrong with it."""
