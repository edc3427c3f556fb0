"""The store in one directory: SQLite with one writing thread, and readers beside it."""
