"""The store in one PostgreSQL database, shared by all servers of a cell."""
