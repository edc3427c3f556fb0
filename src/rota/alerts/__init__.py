"""Alerts: rules with conditions on the cell's metrics, evaluated by the leader, and notifications
of what begins and ends.
"""
