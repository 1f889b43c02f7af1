"""May open so few files that its workers cannot be started."""

import resource

from plain import BASELINE, build_dataset, build_model, compute_loss  # noqa: F401

resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
