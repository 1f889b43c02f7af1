"""The report of a study: read once into one value, told in a terminal, a table, JSON or a page."""
