"""The life of a job: it waits, starts, goes on, ends and is tried again; alone, in an array or in
a gang.
"""
