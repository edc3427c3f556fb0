"""Alerts: the leader evaluates rules on the cell's metrics and sends notifications when they begin
to fire and when they resolve.
"""
