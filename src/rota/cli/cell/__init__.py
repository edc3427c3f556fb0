"""Commands about the cell: its servers, workers, queues, tenants and tokens, alerts, and live
figures.
"""
