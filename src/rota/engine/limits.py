"""Every bound of the loop, named, with its reason."""

INBOX_MAX = 20_000
"""Inputs that may wait for a turn; past it callers are asked to slow down."""
TURN_WEIGHT_MAX = 20_000
"""Jobs and inputs stepped in one turn: one append must not take so long that others time out."""
CLOCK_JUMP_MS = 500
"""The wall clock may drift this much against the steady one before it is taken for a jump."""
CLOCK_LOOK_S = 10.0
"""The longest sleep while something is to come: setting the wall clock ends no sleep by itself."""
RELOAD_DELAY_S_MAX = 5.0
"""The longest pause between two tries to load the scheduler again."""
