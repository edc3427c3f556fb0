"""EXECUTES: an agent that leases work, runs it and reports until it is heard."""
