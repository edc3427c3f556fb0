"""Commands about what would be: policies tried on a past or an invented workload, workers that
would do.
"""
