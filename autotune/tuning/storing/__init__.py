"""The study and where it lies: Optuna's storage, the journal before it, locks and leases."""
