"""Worker agent: leases jobs from a cell's servers, executes them, and reports their results until a
server has taken them."""
