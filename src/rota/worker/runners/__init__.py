"""One runner a kind of task."""
