"""RUNS the core: drains inputs, steps, makes the outcome durable, then lets effects leave."""
