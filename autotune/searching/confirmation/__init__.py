"""Confirmation: candidates, their race with the baseline, the result."""
