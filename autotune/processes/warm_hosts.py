"""Choose the warm host that a runner forks from, and keep track of the dataset that it has built.

There is one host of the environment as it is, and one with the variables that the last settings
asked for. Both end when a job names another host, and one does when a job needs another dataset of
it, or other variables. A dataset that forks cannot use is built by each child itself for the rest
of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.configuration.job import Job, job_to_json
from autotune.configuration.training_config import TrainingConfig, environ_of, own_of_kind
from autotune.knobs.base import Value
from autotune.processes.launch import Building, Forked, WarmHost
from autotune.system.trial_folder import TrialFolder, write_atomically

_Dataset = tuple[str | None, dict[str, Value]]
_Environ = frozenset[tuple[str, str]]
_PLAIN: _Environ = frozenset()


def _dataset_of(job: Job) -> _Dataset:
    """Return what a dataset depends on: the model.py, and the arguments of its build_dataset."""
    return job.model_path, own_of_kind(job.config or {}, "dataset_options")


def variables_needed(job: Job) -> dict[str, str]:
    """Return the variables that a job's settings need when its process starts.

    Those that this process has already are left out.
    """
    needed = environ_of(TrainingConfig.of(job.config or {}))
    return {name: value for name, value in needed.items() if os.environ.get(name) != value}


def _environ_of(job: Job) -> _Environ:
    return frozenset(variables_needed(job).items())


@dataclass
class _Place:
    """The place of a warm host, which may not be started yet, or no more."""

    host: WarmHost | None = None
    built: _Dataset | None = None

    def close(self) -> None:
        """End the host, if there is one."""
        if self.host is not None:
            self.host.close()
        self.host = self.built = None


class Hosts:
    """The warm hosts of one runner; call `close` to end them."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        """Set the Python of hosts, and what they get in addition to this process's environment."""
        self._python = python
        self._environ = environ
        self._places: dict[_Environ, _Place] = {}
        self._name: str | None = None
        self._refused: dict[_Environ, str] = {}
        self._spoilt_by_packages: set[_Environ] = set()
        self._reasons: dict[tuple[_Environ, str | None], str] = {}
        self._packages: dict[str | None, tuple[str, ...]] = {}

    @property
    def pids(self) -> frozenset[int]:
        """Process numbers of the hosts."""
        return frozenset(one.host.pid for one in self._places.values() if one.host is not None)

    def close(self) -> None:
        """End all hosts."""
        for place in self._places.values():
            place.close()
        self._places.clear()

    def why_not_forked(self, job: Job) -> str:
        """Return why no host of the job's environment can be forked; "" as far as is known.

        What the host without variables refuses, those with variables do as well.
        """
        return self._refused.get(_PLAIN) or self._refused.get(_environ_of(job), "")

    def make_room(self, job: Job) -> None:
        """End hosts with variables for a job that needs none, since they may hold a dataset."""
        if job.host is None or job.is_of_ranks:
            self._keep(_PLAIN)

    def why_not_shared(self, job: Job) -> str | None:
        """Return why the job's process builds its dataset itself; None if its host does."""
        if job.fresh_data:
            return "asked for"
        return self._reasons.get((_environ_of(job), job.model_path))

    def building(self, job: Job, files: TrialFolder) -> Building | None:
        """Let the job's host build the dataset; return None if there is nothing to build."""
        has_dataset = job.model_path is not None and job.script is None
        wanted = _dataset_of(job) if has_dataset and not self.why_not_shared(job) else None
        if job.host != self._name:
            self.close()
        self._name, place = job.host, self._place_of(job)
        has_ended = place.host is not None and place.host.has_ended
        if has_ended or place.built not in (None, wanted):
            place.close()
        if wanted is None or place.built == wanted:
            return None
        return Building(self._opened(job), files)

    def note(self, job: Job, building: Building) -> None:
        """Record how building ended; end a host that ran the workload without a usable dataset."""
        if building.is_done:
            self._place_of(job).built = _dataset_of(job)
        else:
            self._reasons[_environ_of(job), job.model_path] = building.reason
        if building.has_spoilt_host:
            self._place_of(job).close()

    def learn(self, job: Job, packages: tuple[str, ...]) -> None:
        """Let hosts import what the job's script was seen to import, before they fork for it."""
        self._packages[job.model_path] = packages

    def fork(self, job: Job, files: TrialFolder, lifeline: int, keep_logs: bool) -> Forked | str:
        """Fork the job's host, or return why that is impossible.

        A host that has died, or that packages have spoilt for forks, is replaced once.
        """
        reason, environ = "warm hosts do not answer", _environ_of(job)
        for _ in range(2):
            is_spoilt = environ in self._spoilt_by_packages
            packages = () if is_spoilt else self._packages.get(job.model_path, ())
            forked = self._opened(job).fork(job, files, lifeline, keep_logs, packages)
            if isinstance(forked, Forked):
                return forked
            self._place_of(job).close()
            if packages:  # which may be why; without them once more
                self._spoilt_by_packages.add(environ)
            elif forked is not None:
                reason = forked
                break
            # A fork of the dead host may have taken the script's arguments out of the file.
            write_atomically(files.job, job_to_json(job))
        self._refused[environ] = reason
        return reason

    def _place_of(self, job: Job) -> _Place:
        """Return the place of a job's host; of hosts with variables only this one stays."""
        environ = _environ_of(job)
        if environ != _PLAIN:
            self._keep(_PLAIN, environ)
        return self._places.setdefault(environ, _Place())

    def _keep(self, *environs: _Environ) -> None:
        """End the hosts of other environments; each may hold a dataset."""
        for other in self._places.keys() - set(environs):
            self._places.pop(other).close()

    def _opened(self, job: Job) -> WarmHost:
        """Return the job's host, started if there is none."""
        place = self._place_of(job)
        if place.host is None:
            place.host = WarmHost(self._python, {**self._environ, **variables_needed(job)})
        return place.host
