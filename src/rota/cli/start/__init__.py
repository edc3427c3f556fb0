"""Commands that start servers, workers and gateways, and what they are put together from."""
