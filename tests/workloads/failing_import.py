"""Imports what is not installed."""

import no_such_module  # noqa: F401
from plain import BASELINE, build_dataset, build_model, compute_loss  # noqa: F401
