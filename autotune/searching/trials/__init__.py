"""Trials, incumbent validation, drift, parallel devices and workers."""
