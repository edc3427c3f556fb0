"""What can be asked about what is to come: what would help, who would start, how many workers
would do.
"""
