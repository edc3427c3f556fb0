"""Who may come in, and how much each may hold, send and ask: tokens, roles, sessions, limits of
rate and size.
"""
