"""Commands about a cell: its servers, workers, queues, tenants, tokens, alerts and statistics."""
