"""Proposals: values in, a configuration out. No Optuna."""
