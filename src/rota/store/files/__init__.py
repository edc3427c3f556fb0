"""Bulk that never goes through the journal: uploads, output files, pieces of logs, object
storage.
"""
