"""Limits on clients: request rates, open connections, memory of large bodies and answers."""
