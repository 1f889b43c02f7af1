"""Writes binary rubbish, terminal escapes and 5 MB of text wherever it can."""

import os
import sys

import plain
from plain import BASELINE, build_dataset, compute_loss, evaluate  # noqa: F401

RUBBISH = b'\xff\xfe\x00\x1b[2J\x1b]0;title\x07{"kind": "measured"}\n'

for descriptor in (1, 2):
    os.write(descriptor, RUBBISH)
print("a flood " * 640_000)


def build_model():
    sys.stderr.buffer.write(RUBBISH)
    sys.stdout.close()
    return plain.build_model()
