"""Connections to a server: short calls over connections that are kept, and a general HTTP client
for the rest.
"""
