"""The end of a search: candidates in rounds with the baseline, and what is emitted."""
