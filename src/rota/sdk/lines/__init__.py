"""The ways to a server: short calls over lines that are kept, and a general HTTP client for the
rest.
"""
