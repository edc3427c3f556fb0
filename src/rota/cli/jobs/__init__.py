"""Commands about jobs: submit, read, act, wait, explain; their tries, files and bundles."""
