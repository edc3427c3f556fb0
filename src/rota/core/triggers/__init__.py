"""What waits for events: the bus of triggers, the filters an event must pass, and the slots it
fills.
"""
