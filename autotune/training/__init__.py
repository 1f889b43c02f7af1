"""Train a workload under settings, time it and read it back.

It imports torch and the user's code, never Optuna. `tasks` has the tasks that it carries out. Only
`apply_settings` and `training_setup` give settings their effect.
"""
