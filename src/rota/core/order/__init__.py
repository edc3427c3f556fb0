"""WHICH job is next: lines of alike jobs, the order among them, and what holds a queue, key or
tenant back.
"""
