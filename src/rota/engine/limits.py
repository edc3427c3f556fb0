"""Every bound of the loop, named, with its reason."""

INBOX_MAX = 20_000
"""Inputs that may wait for a turn; past it callers are asked to slow down."""
TURN_WEIGHT_MAX = 20_000
"""Jobs and inputs stepped in one turn: one append must not take so long that others time out."""
CLOCK_JUMP_MS = 500
"""The wall clock may drift this much against the steady one before it is taken for a jump."""
REFILL_PATIENCE_S = 0.2
"""How long a refill that nobody waits for lets the fold take its time: one that is hurried folds
less at once, and does more work in the end."""
REFILL_LOOK_S = 0.02
"""How often it looks meanwhile: at a number."""
REFILL_RETRY_S = 0.5
"""Pause before the store is asked again for waiting jobs that it could not read."""
RELOAD_DELAY_S_MAX = 5.0
"""The longest pause between two tries to load the scheduler again."""
