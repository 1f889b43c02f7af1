"""Programs that reproduce every number of docs/benchmarks.md."""
