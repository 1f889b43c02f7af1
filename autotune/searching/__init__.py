"""The search, from its first event to its last."""
