"""Implements the command line, the only package that knows all others."""
