"""Batches of a DataLoader, endless and counted."""
