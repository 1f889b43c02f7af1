"""Optuna Dashboard on a study: who may ask for what, what is attached, and the server."""
