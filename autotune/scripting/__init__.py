"""Training scripts that nobody changed: run under settings, watched and timed.

Everything here stands between a script and torch. `program` runs the script as Python would,
`interpose` puts settings into force, `seen` says what the script does, `trial` times it.
"""
