"""How the tables follow the journal: what is appended and not folded, what is known and need not
be read.
"""
