"""Optuna Dashboard on a study, to be read only."""
