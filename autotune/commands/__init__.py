"""Commands, one file each: flags in, exit codes out. Running a command does the heavy imports."""
