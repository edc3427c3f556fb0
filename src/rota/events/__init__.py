"""Event bridge (`rota events`): publishes events of brokers, folders and PostgreSQL to the server,
and delivers state changes to sinks.
"""
