"""Wire to core and back: what was sent becomes an input, what is known becomes an answer."""
