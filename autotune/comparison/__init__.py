"""Paired comparison: rounds of fresh processes and the sequential test over them."""
