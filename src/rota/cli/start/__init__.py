"""What stays when it is started: servers, workers and gateways, put together from all rooms."""
