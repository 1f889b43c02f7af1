"""The Optuna study: trials, notes, samplers, opening and resuming, repair."""
