"""Accuracy of a configuration: probes, seeds, numerical checks."""
