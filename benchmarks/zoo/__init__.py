"""Search a zoo of unchanged scripts."""
