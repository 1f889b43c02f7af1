"""Trains by a library, and says with which settings."""

import sys

import trainer_library

fit = trainer_library.Fit(trainer_library.MoreArguments(rate=1e-3), 0.5)
fit.run(100_000 if "forever" in sys.argv else 2)
trainer_library.report(fit)
