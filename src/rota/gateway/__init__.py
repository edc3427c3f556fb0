"""Gateway: one HTTP address for several cells, which it knows by their public API only."""
