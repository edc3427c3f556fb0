"""The inside of a warm child, a process in which Python functions of users run."""
