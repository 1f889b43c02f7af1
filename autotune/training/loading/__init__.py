"""Batches of a DataLoader, endless and counted; whether workers share a stream."""
