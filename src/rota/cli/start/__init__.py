"""Commands that start servers, workers and gateways, and the parts a server is composed of."""
