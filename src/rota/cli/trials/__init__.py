"""Commands that put an installation to the test: bench, doctor, verify."""
