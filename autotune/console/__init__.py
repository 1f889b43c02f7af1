"""The output that a person sees in a terminal."""
