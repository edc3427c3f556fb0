"""The public contract as typed records: what the HTTP API takes and answers. Imports nothing else
of Rota.
"""
