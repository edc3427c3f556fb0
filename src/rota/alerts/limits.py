"""Every limit of the alerts, named, with its reason."""

LOOK_S = 10.0
"""How often the leader compares its metrics with the rules."""
WINDOW_MS_MIN = 30_000
"""The shortest window of a rule: a few samples."""
WINDOW_MS_MAX = 3_600_000
"""The longest window: the samples of so long are kept in memory."""
RULES_MAX = 200
"""Rules of a cell: people read their notifications."""
CHANNELS_MAX = 50
"""Channels of a cell."""
RECENT_KEPT = 100
"""Past notifications that are shown."""
OUTBOX_MAX = 500
"""Notifications that wait for channels that do not answer; the oldest are dropped first."""
DELIVERIES_KEPT = 300
"""Results of deliveries: those of all shown notifications, with a few channels."""
ERROR_CHARS_MAX = 300
"""Length of a stored delivery error."""
SEND_S_MAX = 20.0
"""Time to send one notification to one channel."""
RETRY_MS_FIRST = 10_000
"""Pause before a notification is sent again; it doubles."""
RETRY_MS_MAX = 600_000
"""The longest such pause."""
GIVE_UP_MS = 6 * 3_600_000
"""A notification that could not be sent for so long is dropped: it is too old to matter."""
ANSWER_BYTES_MAX = 65_536
"""Bytes read of a webhook's answer."""
