"""The inside of a warm child: the process in which Python functions of users run."""
