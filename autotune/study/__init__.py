"""The Optuna study: its storage, facts, trials and samplers."""
