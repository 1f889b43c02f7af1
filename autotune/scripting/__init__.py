"""Run an unmodified training script under settings, observe it and time it.

`run` runs the script as Python would, `interpose` applies settings, `observed_training` records
what the script trains with, and `trial` times it.
"""
