"""Every limit of the alerts, named, with its reason."""

LOOK_S = 10.0
"""How often the leader compares its figures with the rules."""
WINDOW_MS_MIN = 30_000
"""The shortest window of a rule: a few looks."""
WINDOW_MS_MAX = 3_600_000
"""The longest: the looks of so long are kept in memory."""
RULES_MAX = 200
"""Rules of a cell: people read what they set off."""
CHANNELS_MAX = 50
"""Addresses that are told."""
RECENT_KEPT = 100
"""Past alerts that are shown."""
OUTBOX_MAX = 500
"""Notices that wait for an address that does not answer; the oldest go first."""
DELIVERIES_KEPT = 300
"""What became of notices: all of those that are shown, with a few addresses."""
ERROR_CHARS_MAX = 300
"""Kept of what a receiver that took nothing is said to have done."""
SEND_S_MAX = 20.0
"""For one notice to one address."""
RETRY_MS_FIRST = 10_000
"""Pause before a notice is sent again; it doubles."""
RETRY_MS_MAX = 600_000
"""The longest pause."""
GIVE_UP_MS = 6 * 3_600_000
"""A notice that nobody took for so long is dropped: it would be news no longer."""
ANSWER_BYTES_MAX = 65_536
"""Read of an answer to a webhook."""
