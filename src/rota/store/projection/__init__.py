"""The projection of the journal into tables, and a standby's copy in memory."""
