"""The Optuna study: trials, samplers, opening and resuming, repair."""
