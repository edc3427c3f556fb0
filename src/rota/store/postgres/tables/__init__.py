"""PostgreSQL's tables: folded from the journal, cut into partitions of time, loaded, and read in
pages.
"""
