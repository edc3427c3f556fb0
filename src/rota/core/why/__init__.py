"""Why a job is not running, from the same gates and filters that decide; and the small pictures
of what is there.
"""
