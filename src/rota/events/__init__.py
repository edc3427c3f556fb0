"""HEARS and TELLS: folders, databases and brokers in; webhooks and brokers out."""
