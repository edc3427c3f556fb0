"""Projection of the journal into tables, and a standby's copy of it in memory."""
