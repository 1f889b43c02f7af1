"""Optuna Dashboard on a study: access rules, attachments and the server."""
