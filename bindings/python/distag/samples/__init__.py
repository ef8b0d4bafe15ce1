"""Programs to copy: `python3 -m distag.samples.digits`, `python3 -m distag.samples.service`."""
