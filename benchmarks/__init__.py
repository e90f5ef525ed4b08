"""What the harness itself costs, side by side with bare engines: `make bench`."""
