"""Training in several processes: what they decide together, and what each of them gets."""
