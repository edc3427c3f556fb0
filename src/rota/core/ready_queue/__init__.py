"""Ready queue: decides which job is next, by class, fair share, limits and concurrency keys."""
