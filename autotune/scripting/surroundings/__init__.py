"""Record what surrounds a script's training: its flags, the files that it writes, its trackers.

Nothing is changed: functions of parsers are wrapped to note their results.
"""
