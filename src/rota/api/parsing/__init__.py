"""Parses requests within limits, and says in plain words what is wrong with them."""
