"""Whatever reads a file that someone else may have written, and files that it reads gladly."""

import lzma
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.job import Job, Measure, MeasurePlan, job_from_json, job_to_json
from autotune.configuration.search_space import read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import read_some
from autotune.study.facts import CandidateLog
from autotune.values import outcome as kinds
from autotune.values.errors import AutotuneError
from benchmarks.table import Header, Row, Table, read_table, write_table
from factories import IMAGE_FACTS, best_config, cpu_machine, measurement

SPACE = """\
about: Some of everything.
portable: true
trials: 12
batch_size: {low: 16, high: 512, log2: true}
num_workers: {low: 0, high: 4, step: 2}
amp_dtype: [null, bfloat16]
channels_last: [false, true]
"""


FASTER = TrainingConfig.of({"batch_size": 256, "num_workers": 2, "amp_dtype": "bfloat16"})
ANSWER = best_config(FASTER, TrainingConfig.of({"num_threads": 2}))
RUN = asdict(measurement())
# What a search notes of itself.
FACTS: dict[str, Any] = {
    "identity": {
        "facts": {"baseline": {"batch_size": 8}, "space": {}, "memory_limit_bytes": 1 << 30}
    },
    "plan": {"options": {}, "trials": 5, "open": True},
    "start_seconds": 2.5,
    "run_seconds": 3,
    "baseline_runs": [RUN, RUN],
    "probe_samples": 512,
    "seed_seconds": 6.2,
    "seeds:batch_size=16": [0.5, 0.75],
    "check:amp_dtype=null": asdict(kinds.Crashed("killed by SIGSEGV")),
    "drift:@cuda:1": [{"trials": 4, "samples_per_second": 101.5}],
    "seconds:accuracy": 9.5,
    "diagnosis": asdict(kinds.Diagnosed(8, 0.04, None, 0.0, (kinds.Loading(0, 0.01),), 0.02)),
    "confirmation": {
        "seconds": 9.5,
        "candidates": {"4": asdict(CandidateLog(ratios=(1.5,)))},
        "baseline_rates": [100.5],
    },
    "answer": {"trials": 5, "best": ANSWER.model_dump(mode="json")},
    "colour": {"whatever": [1, None]},
}


@dataclass(frozen=True)
class Reader:
    """A kind of file: its name, what reads it, and what it reads without a fault."""

    name: str
    read: Callable[[Path], object]
    sample: Callable[[Path], None]

    def survives(self, content: bytes, folder: Path) -> bool:
        """Return True if the content is valid; any error but one of ours goes through."""
        path = folder / self.name
        path.write_bytes(content)
        try:
            self.read(path)
        except AutotuneError:
            return False
        return True


@cache
def sample_of(reader: Reader, folder: Path) -> bytes:
    """The bytes of a valid file."""
    path = folder / f"sample-{reader.name}"
    reader.sample(path)
    return path.read_bytes()


def _space(path: Path) -> None:
    path.write_text(SPACE, encoding="utf-8")


def _best(path: Path) -> None:
    write_best(ANSWER, path)


def _table(path: Path) -> None:
    config = TrainingConfig.of({"batch_size": 8}).as_dict()
    header = Header(
        name="digits",
        machine=cpu_machine(),
        workload=IMAGE_FACTS,
        space={"batch_size": (8, 16)},
        baseline=config,
        memory_limit_bytes=1 << 30,
        model_sha256="0" * 64,
        about="made for a test",
    )
    outcomes = (kinds.Measured(measurement()), kinds.Crashed("killed by SIGSEGV"))
    rows = tuple(Row(Measure(MeasurePlan()), config, outcome, 1.5) for outcome in outcomes)
    write_table(Table(header, rows), path)


def _job(path: Path) -> None:
    config = TrainingConfig.of({"num_workers": 2}).as_dict()
    job = Job(Measure(MeasurePlan()), "cuda:1", "/home/me/model.py", config, seed=7)
    path.write_text(job_to_json(job), encoding="utf-8")


def _measured(path: Path) -> None:
    path.write_text(kinds.outcome_to_json(kinds.Measured(measurement())), encoding="utf-8")


def _inspected(path: Path) -> None:
    path.write_text(
        kinds.outcome_to_json(kinds.Inspected(cpu_machine(), IMAGE_FACTS)), encoding="utf-8"
    )


def _read_job(path: Path) -> Job:
    """As a child does."""
    return job_from_json(read_some(path))


def _read_outcome(path: Path) -> object:
    """As the runner does."""
    return kinds.outcome_from_json(read_some(path))


READERS = (
    Reader("space.yaml", read_space, _space),
    Reader("best.yaml", read_best, _best),
    Reader("job.json", _read_job, _job),
    Reader("outcome.json", _read_outcome, _measured),
    Reader("inspected.json", _read_outcome, _inspected),
    Reader("table.jsonl", read_table, _table),
    Reader("table.jsonl.xz", read_table, _table),
)
# What takes a few kilobytes on disk, and 64 MiB where it is unpacked.
PACKED = lzma.compress(b"x" * (1 << 26), preset=0)
