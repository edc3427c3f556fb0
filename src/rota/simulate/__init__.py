"""Policy simulation: replays a workload trace or a synthetic workload on a simulated fleet, under
virtual time.
"""
