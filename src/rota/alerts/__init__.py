"""Watches the figures of a cell, and tells people when a rule says that they should know."""
