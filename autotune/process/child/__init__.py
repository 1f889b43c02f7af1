"""The child process: its entry point, and the host from which trials are forked."""
