"""Policy simulation: replays a recorded or synthetic workload on a simulated fleet, under virtual
time.
"""
