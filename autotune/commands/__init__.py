"""The commands, a file each: flags in, exit codes out. Heavy imports wait until one is run."""
