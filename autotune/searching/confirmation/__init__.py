"""Confirmation: candidates, re-timing, rounds with the baseline, the result."""
