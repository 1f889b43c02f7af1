"""Report of a study: one value, shown as text, table, JSON or a page; Optuna Dashboard on it."""
