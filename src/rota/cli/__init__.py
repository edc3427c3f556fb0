"""STARTS: the command line, the only place that knows all rooms."""
