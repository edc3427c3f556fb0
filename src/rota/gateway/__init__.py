"""Routes: spreads tenants over cells and makes many cells look like one. Decides nothing."""
