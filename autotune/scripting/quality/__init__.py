"""The quality of a script's training: its loss, or the metric that it prints."""
