"""Measure which faults the numerics check finds, by which criterion, and what it refuses wrongly.

    python -m benchmarks.numerics [--out FILE]

Each fault is put into the training loop of each model, once beside a setting that only reorders
the arithmetic and once beside one that lowers the precision. The check that runs is the one of a
search, in this process. Settings without a fault must pass. It takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from autotune.accuracy.numerics_verdict import NUMERICS, PRECISION, errors
from autotune.configuration.job import Gate, Job
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.numerics.numerics_check import compare
from autotune.process.common.trial_folder import TrialFolder
from autotune.training.quality import NonFiniteLossError
from autotune.training.tasks import LoadedJob
from autotune.training.training_setup import TrainingSetup
from autotune.values.outcome import Gated
from benchmarks.numerics_faults import FAULTS, Fault
from benchmarks.numerics_models import MODELS
from benchmarks.page import RESULTS

Settings = Mapping[str, Value]
PAIRS = (
    ("perceptron", "SGD"),
    ("convolutions with BatchNorm", "AdamW"),
    ("24 layers with BatchNorm", "SGD"),
    ("transformer", "AdamW"),
    ("GRU", "Adam"),
    ("perceptron with dropout", "Adam"),
)
"""Each model with an optimizer."""
CARRIERS: Mapping[str, Settings] = {
    "same precision": {"optimizer_impl": "fused"},
    "bfloat16": {"optimizer_impl": "fused", "amp_dtype": "bfloat16"},
}
"""Settings beside which the faults are put."""
_RIGHT: Sequence[Settings] = (
    {"optimizer_impl": "fused"},
    {"amp_dtype": "bfloat16"},
    {"amp_dtype": "float16"},
    {"float32_matmul_precision": "medium"},
    {"amp_dtype": "bfloat16", "optimizer_impl": "fused"},
)
_LAYOUTS: Sequence[Settings] = (
    {"channels_last": True},
    {"channels_last": True, "amp_dtype": "bfloat16", "optimizer_impl": "fused"},
)
_COMPILED: Settings = {"compile_mode": "default"}
_CRITERIA = ("update", "gradients", "loss", "path", "reach", "buffers", "not finite")
_BATCHES = {0: 16, 1: 8, 2: 512}
"""Batch size by seed; 512 samples are an epoch."""


@dataclass(frozen=True)
class Case:
    """One check: a model and its optimizer under some settings, with a fault or without."""

    model: str
    optimizer: str
    settings: Settings
    fault: str | None = None
    seed: int = 0

    @property
    def lower_precision(self) -> bool:
        """Return True if the settings lower the precision."""
        return any(name in self.settings for name in PRECISION)


@dataclass(frozen=True)
class _FaultyJob(LoadedJob):
    """A loaded job whose loops have a fault, but not those of its reference."""

    fault: Fault = lambda setup: setup
    tested: TrainingConfig | None = None

    def setup(self, dataset: Dataset[Any], seed: int) -> TrainingSetup:
        """Build a training loop.

        Raises:
            NotImplementedError: the fault changes nothing in this model.
        """
        setup = super().setup(dataset, seed)
        broken = self.fault(setup) if self.config == self.tested else setup
        if broken is None:
            raise NotImplementedError
        return broken


def faulty() -> Iterator[Case]:
    """Yield a check for each fault, model and carrier."""
    for fault in FAULTS:
        for model, optimizer in PAIRS:
            for settings in CARRIERS.values():
                yield Case(model, optimizer, settings, fault)


def right() -> Iterator[Case]:
    """Yield a check for each model, seed and settings that only round."""
    for model, optimizer in PAIRS:
        layouts = _LAYOUTS if "convolutions" in model else ()
        for seed in _BATCHES:
            for settings in (*_RIGHT, *layouts):
                yield Case(model, optimizer, settings, seed=seed)
    for model, optimizer in (PAIRS[0], PAIRS[1], PAIRS[3]):
        yield Case(model, optimizer, _COMPILED)


def checked(case: Case) -> Gated | str | None:
    """Run a check; return its numbers, why they are not finite, or None for a fault without effect.

    Raises:
        RuntimeError: the check failed.
    """
    batch = _BATCHES[case.seed]
    config = TrainingConfig.of({"batch_size": batch, "num_threads": 1, **case.settings})
    reference = config.replace(**{name: KNOBS[name].default for name in NUMERICS})
    workload = MODELS[case.model].workload(case.optimizer)
    fault: Fault = FAULTS[case.fault] if case.fault else lambda setup: setup
    task = Gate(reference.as_dict())
    job = Job(task, "cpu", None, config.as_dict(), seed=case.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = TrialFolder(Path(folder))
        loaded = _FaultyJob(job, place, workload, config, 0.0, fault=fault, tested=config)
        try:
            outcome = compare(loaded, task)
        except NotImplementedError:
            return None
        except NonFiniteLossError as error:
            return str(error)
    if not isinstance(outcome, Gated):
        raise RuntimeError(f"{case}: {outcome}")
    return outcome


@dataclass(frozen=True)
class Found:
    """A check's answer, as the criteria that object."""

    case: Case
    criteria: tuple[str, ...]
    shares: Mapping[str, float]
    """Largest share of a limit that an error reaches, by criterion; empty if one is not finite."""


def judged(case: Case, answer: Gated | str) -> Found:
    """Return what the criteria say of an answer."""
    if isinstance(answer, str):
        return Found(case, ("not finite",), {})
    shares = {name: error / limit for name, error, limit in errors(answer, case.lower_precision)}
    return Found(case, tuple(name for name, share in shares.items() if share > 1), shares)


def table(found: Sequence[Found], load: str) -> dict[str, Any]:
    """Return the file from which `benchmarks.page` makes a table."""
    faulty = [one for one in found if one.case.fault]
    right = [one for one in found if not one.case.fault]
    caught = [one for one in faulty if one.criteria]
    alone = [Found(one.case, one.criteria, {}) for one in caught if len(one.criteria) == 1]
    highest = {name: max(one.shares.get(name, 0.0) for one in right) for name in _CRITERIA[:-1]}
    return {
        "title": "What the numerical check detects",
        "about": "Each fault in the training loop of six small models, once beside a setting that "
        "keeps the precision and once in bfloat16. A cell counts the checks in which a criterion "
        "objects. Faults that change nothing in a model, such as BatchNorm's in one without, are "
        "left out there.",
        "command": "python -m benchmarks.numerics",
        "recorded": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, no GPU, torch {torch.__version__}",
        "load": f"{load}; it has no effect",
        "columns": ["fault", "checks", *_CRITERIA, "found", "of them in bfloat16"],
        "rows": [
            *(_row(fault, [one for one in faulty if one.case.fault == fault]) for fault in FAULTS),
            _row("all faults", faulty),
            _row("found by this criterion only", alone),
            _row("no fault", right),
        ],
        "notes": f"{len(caught)} of {len(faulty)} faults are found, and {_refused(right)} of "
        f"{len(right)} settings without a fault are refused. Their largest errors, as shares of "
        f"the limits: {', '.join(f'{name} {share:.2g}' for name, share in highest.items())}.",
    }


def _row(name: str, found: Sequence[Found]) -> list[str]:
    counts = [sum(criterion in one.criteria for one in found) for criterion in _CRITERIA]
    caught = [one for one in found if one.criteria]
    lower = sum(one.case.lower_precision for one in caught)
    cells = (len(found), *counts, len(caught), lower)
    return [name, *(str(cell) if cell else "" for cell in cells)]


def _refused(right: Sequence[Found]) -> int:
    return sum(bool(one.criteria) for one in right)


def main() -> None:
    """Run all checks and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "numerics.json")
    out: Path = parser.parse_args().out
    load = " ".join(f"{part:.1f}" for part in os.getloadavg())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = ((case, checked(case)) for case in (*faulty(), *right()))
    found = [judged(case, answer) for case, answer in answers if answer is not None]
    out.write_text(json.dumps(table(found, load), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
