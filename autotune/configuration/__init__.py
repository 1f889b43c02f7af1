"""Configuration, search space, job, verdict, and the files that people read and write."""
