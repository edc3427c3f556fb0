"""What tables.py is made of: cells, drafts of what a turn changes, bands, run times, what just
left.
"""
