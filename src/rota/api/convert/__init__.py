"""Conversion between the wire's types and the core's: requests to commands, records to answers."""
