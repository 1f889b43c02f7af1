"""Closes every open file, has no stdout, and turns the process upside down; then it trains."""

import os
import signal
import sys

from plain import BASELINE, build_dataset, build_model, compute_loss, evaluate  # noqa: F401

sys.stdout = sys.stderr = None
os.closerange(0, 256)
os.chdir("/")
os.umask(0o077)
os.environ.clear()
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
