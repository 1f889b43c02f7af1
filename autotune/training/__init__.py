"""The child's side: what runs in the process that trains.

torch and the user's code live here, Optuna never does. `worker` is the process, `tasks` what it
can be asked, `apply` the one place where settings take effect.
"""
