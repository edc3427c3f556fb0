"""Warm child: a Python process that stays alive between calls and runs users' functions."""
