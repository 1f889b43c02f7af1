"""The Optuna study: trials, adapters to its samplers, opening and resuming, repair."""
