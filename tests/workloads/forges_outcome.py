"""Writes an outcome of its own, by batch size, and leaves before the real one is written."""

import os
from dataclasses import replace
from pathlib import Path

from plain import BASELINE, build_dataset, build_model  # noqa: F401

from autotune.values.measurement import Block, Measurement
from autotune.values.outcome import Measured, outcome_to_json

RUN = Measurement(
    blocks=(Block(seconds=0.5, samples=32, wait_seconds=0.0),),
    boundary_seconds=(),
    epoch_samples=None,
    warmup_step_seconds=(0.5,),
    compile_seconds=0.0,
    start_seconds=2.0,
    build_seconds=0.5,
    peak_memory_bytes=1 << 30,
)
WHOLE = outcome_to_json(Measured(RUN))
BACKWARDS = outcome_to_json(Measured(replace(RUN, blocks=(replace(RUN.blocks[0], seconds=-0.5),))))
FORGED = {
    8: WHOLE[: len(WHOLE) // 2].encode(),
    9: b'{"kind": "measured"}' + b" " * (2 << 20),
    10: WHOLE.replace("0.5", "NaN").encode(),
    11: WHOLE.replace("0.5", "1e999").encode(),
    12: BACKWARDS.encode(),
    13: outcome_to_json(Measured(replace(RUN, blocks=()))).encode(),
    14: b"\xff\xfe\x00\x01",
    15: b"[" * 100_000,
}


def compute_loss(model, batch):
    folder = Path("/proc/self/fd/1").readlink().parent
    (folder / "outcome.json").write_bytes(FORGED[len(batch[0])])
    os._exit(0)
