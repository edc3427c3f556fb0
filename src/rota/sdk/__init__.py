"""ASKS: a light client of the HTTP API."""
