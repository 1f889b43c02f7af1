"""Record what surrounds a script's training: its flags, the files that it writes, its trackers.

Flags and files are noted by wrapped functions. Trackers are switched off.
"""
