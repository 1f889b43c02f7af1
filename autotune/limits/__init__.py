"""Limits of a configuration, timed in a child: each stage alone, and the device's arithmetic."""
