"""One run of a search: its events, its time, when its trials end."""
