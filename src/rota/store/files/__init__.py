"""Bulk data that never goes through the journal: uploads, output files and object storage."""
