"""Run an unmodified training script under settings, observe it and time it.

Everything here works between a script and torch. `run` runs the script as Python would,
`interpose` applies settings, `observed_training` records what the script trains with, and `trial`
times it.
"""
