"""Commands that check and measure an installation: bench, doctor, verify."""
