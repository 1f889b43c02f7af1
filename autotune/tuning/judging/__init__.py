"""Whether a configuration trains as well as the baseline, and what starting it costs."""
