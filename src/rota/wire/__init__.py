"""Typed records of the public contract: requests and answers of the HTTP API. Imports nothing else
of Rota.
"""
