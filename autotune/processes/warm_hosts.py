"""Choose the warm host that a runner forks from, and keep track of the dataset that it has built.

There is one host at a time. It ends when a job names another host or needs another dataset. A
dataset that forks cannot use is built by each child itself for the rest of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autotune.configuration.job import Job, job_to_json
from autotune.configuration.training_config import own_of_kind
from autotune.knobs.base import Value
from autotune.processes.launch import Building, Forked, WarmHost
from autotune.system.trial_folder import TrialFolder, write_atomically

_THREADS = "OMP_NUM_THREADS"
_Dataset = tuple[str | None, dict[str, Value]]


def _dataset_of(job: Job) -> _Dataset:
    """Return what a dataset depends on: the model.py, and the arguments of its build_dataset."""
    return job.model_path, own_of_kind(job.config or {}, "dataset_options")


class Hosts:
    """The warm host of one runner; call `close` to end it."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        """Set the Python of hosts, and what they get in addition to this process's environment."""
        self._python = python
        self._environ = environ
        self._host: WarmHost | None = None
        self._name: str | None = None
        self._is_of_ranks = False
        self._built: _Dataset | None = None
        self._reasons: dict[str, str] = {}
        self._packages: dict[str | None, tuple[str, ...]] = {}

    @property
    def pid(self) -> int | None:
        """Process number of the host; None if there is none."""
        return self._host.pid if self._host else None

    def close(self) -> None:
        """End the host, if there is one."""
        if self._host is not None:
            self._host.close()
        self._host = self._built = None

    def why_not_shared(self, job: Job) -> str | None:
        """Return why the job's process builds its dataset itself; None if its host does."""
        if job.processes > 1 and job.script is None:
            return "each of several processes builds its own"
        if job.fresh_data:
            return "asked for"
        return self._reasons.get(job.model_path or "")

    def building(self, job: Job, files: TrialFolder) -> Building | None:
        """Let the job's host build the dataset; return None if there is nothing to build."""
        has_dataset = job.model_path is not None and job.script is None
        wanted = _dataset_of(job) if has_dataset and not self.why_not_shared(job) else None
        is_of_use = job.host == self._name and self._built in (None, wanted)
        is_of_use = is_of_use and (job.processes == 1 or self._is_of_ranks)
        if not is_of_use or (self._host is not None and self._host.has_ended):
            self.close()
            self._is_of_ranks = job.processes > 1
        self._name = job.host
        if wanted is None or self._built == wanted:
            return None
        return Building(self._opened(), files)

    def note(self, job: Job, building: Building) -> None:
        """Record how building ended; end a host that ran the workload without a usable dataset."""
        assert job.model_path is not None
        if building.is_done:
            self._built = _dataset_of(job)
        else:
            self._reasons[job.model_path] = building.reason
        if building.has_spoilt_host:
            self.close()

    def learn(self, job: Job, packages: tuple[str, ...]) -> None:
        """Let hosts import what the job's script was seen to import, before they fork for it."""
        self._packages[job.model_path] = packages

    def fork(self, job: Job, files: TrialFolder, lifeline: int, keep_logs: bool) -> Forked | str:
        """Fork the job's host, or return why that is impossible.

        A host that has died, or that packages have spoilt for forks, is replaced once.
        """
        for _ in range(2):
            packages = self._packages.get(job.model_path, ()) if job.processes == 1 else ()
            forked = self._opened().fork(job, files, lifeline, keep_logs, packages)
            if isinstance(forked, Forked):
                return forked
            self.close()
            if packages:  # which may be why; without them once more
                del self._packages[job.model_path]
            elif forked is not None:
                return forked
            # A fork of the dead host may have taken the script's arguments out of the file.
            write_atomically(files.job, job_to_json(job))
        return "warm hosts do not answer"

    def _opened(self) -> WarmHost:
        """Return the host, started if there is none; of several processes it has one thread.

        Torch's launcher sets the same variable, which is read while torch is imported.
        """
        if self._host is None:
            threads = {_THREADS: os.environ.get(_THREADS, "1")} if self._is_of_ranks else {}
            self._host = WarmHost(self._python, {**self._environ, **threads})
        return self._host
