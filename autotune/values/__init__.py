"""Values without behaviour of their own: plain data, text, statistics. No torch, no Optuna."""
