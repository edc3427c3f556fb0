"""The servers of a cell among each other: calls passed on to the leader, and jobs taken while
nobody leads.
"""
