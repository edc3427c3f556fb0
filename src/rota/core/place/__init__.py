"""WHERE a job goes: who could run it at all, who has room, who fits best, and whom it would
rather have.
"""
