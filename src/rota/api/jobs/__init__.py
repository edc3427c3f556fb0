"""Calls about jobs: submitting them, acting on one or many, their tries, logs, files and
bundles.
"""
