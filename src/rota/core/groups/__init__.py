"""Job groups: arrays, whose members start one by one, and gangs, which start as a whole."""
