"""The fixed facts of one search: options, machine, workload, space, time budget."""
