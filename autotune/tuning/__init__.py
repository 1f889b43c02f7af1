"""The parent's side: the search.

Optuna lives here (`study`, `samplers`), torch and the user's code never do. `search` is the whole
way from a baseline to an answer; `runner` is how it reaches the process that trains.
"""
