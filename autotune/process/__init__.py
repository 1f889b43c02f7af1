"""Child processes: starting, watching and ending them, and the devices that they use."""
