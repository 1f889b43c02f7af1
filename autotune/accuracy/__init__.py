"""Accuracy of a configuration: probes, seeds, numerics checks."""
