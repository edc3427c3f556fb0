"""Ready queue: decides WHICH job is next, by class, fair share, limits and concurrency keys."""
