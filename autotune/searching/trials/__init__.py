"""Baseline, trials, incumbent validation, drift, parallel devices and workers."""
