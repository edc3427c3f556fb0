"""The store in one PostgreSQL, shared by all servers of a cell; what is folded from the journal
is in tables/.
"""
