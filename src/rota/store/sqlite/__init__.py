"""The store in one data directory: SQLite with one writing thread; also in memory."""
