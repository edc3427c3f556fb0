"""SPEAKS: the public contract as typed records. Knows nobody."""
