"""Processes of a server, and what they share: log, event loop, messages between them."""
