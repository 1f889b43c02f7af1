"""Report of a study: read once into one value, shown as terminal text, table, JSON or a page."""
