"""Commands about jobs: submit, list, change, wait, explain; their executions, logs and bundles."""
