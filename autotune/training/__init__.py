"""Train a workload under settings, time it and read it back.

It imports torch and the user's code, never Optuna. `tasks` holds the tasks
that it carries out; `apply_settings` and `training_setup` are the one place where settings take
effect.
"""
