"""LISTENS: parses a request, posts it to the engine, awaits the receipt, renders the answer."""
