"""The database, the journal, locks and leases of a study."""
