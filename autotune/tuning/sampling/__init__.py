"""What to try next: samplers, and when further trials are not worth their time."""
