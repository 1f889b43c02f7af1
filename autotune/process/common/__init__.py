"""The operating system as both processes use it: files, cores, pipes, the process tree."""
