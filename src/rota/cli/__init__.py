"""The `rota` command: a module for each command or noun, and what they share. The only package
that may import all others.
"""
