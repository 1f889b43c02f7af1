"""Warm hosts: processes that have imported torch and fork a child for each job.

There is one host of the environment as it is, and one with the variables that the last settings
asked for. Both end when a job names another host, and one does when a job needs another dataset of
it, or other variables. A dataset that forks cannot use is built by each child itself for the rest
of the run.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from autotune.configuration.job import Job, job_to_json
from autotune.configuration.training_config import TrainingConfig, environ_of, own_of_kind
from autotune.knobs.base import Value
from autotune.process.children import ended_within
from autotune.process.common.child_ties import channel, lifeline, receive, send
from autotune.process.common.trial_folder import TrialFolder, write_atomically

HOST_PATIENCE_SECONDS = 120.0
"""Seconds to wait for a warm host: it may import torch on a busy machine."""
# Seconds for a killed host to be gone; a longer wait is inside the kernel and may have no end.
_KILLED_SECONDS = 10.0
_Dataset = tuple[str | None, dict[str, Value]]
_Environ = frozenset[tuple[str, str]]
_PLAIN: _Environ = frozenset()


class Forked:
    """A child forked from a warm host; the host reports when it ends."""

    def __init__(self, pid: int, host: WarmHost) -> None:
        self.pid = pid
        self.host_pid: int | None = host.pid
        self.exit_code: int | None = None
        self._host = host
        self._ended = False

    def ended_within(self, seconds: float) -> bool:
        """Sleep until it ends, at most `seconds`; return True if it ended."""
        if not self._ended and self._host.answers_within(seconds):
            exit_code = self._host.answer().get("exit_code")
            self.exit_code = exit_code if isinstance(exit_code, int) else None
            self._ended = True
        return self._ended


class Building:
    """A warm host that imports a workload and builds its dataset; it may fail as a child may."""

    host_pid: int | None = None
    exit_code: int | None = None

    def __init__(self, host: WarmHost, files: TrialFolder) -> None:
        self.pid = host.pid
        self._host = host
        self._answer: dict[str, Any] | None = host.asked_to_build(files)

    @property
    def is_done(self) -> bool:
        """True once forks find the dataset built."""
        return "built" in (self._answer or {})

    @property
    def has_spoilt_host(self) -> bool:
        """True if the host ran the workload but has no dataset for its forks."""
        return not {"built", "unchanged"} & set(self._answer or {})

    @property
    def reason(self) -> str:
        """Reason why forks have no dataset."""
        said = next(iter((self._answer or {}).values()), None)
        return str(said or "the fork server ended while it built the dataset")

    def begins_within(self, seconds: float) -> bool:
        """Sleep until the host begins or refuses, at most `seconds`; return True if it did."""
        if self._answer is None and self._host.answers_within(seconds):
            answer = self._host.answer()
            self._answer = None if "begins" in answer else answer
            return True
        return self._answer is not None

    def ended_within(self, seconds: float) -> bool:
        """Sleep until building ended or failed, at most `seconds`; return True if it did."""
        return self.begins_within(seconds) and self._answer is not None


class WarmHost:
    """A process that has imported torch and forks a child for each job."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.built: _Dataset | None = None
        """The dataset that its forks share; None if none was built."""
        self._end, other_end = channel()
        self._end.settimeout(HOST_PATIENCE_SECONDS)
        descriptor = other_end.fileno()
        program = ["-m", "autotune.process.child.warm_host", str(descriptor), lifeline()]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environ},
                start_new_session=True,
                pass_fds=(descriptor,),
            )
        except OSError:
            self._end.close()
            raise
        finally:
            other_end.close()
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once the process has ended."""
        return self._process.poll() is not None

    def asked_to_build(self, files: TrialFolder) -> dict[str, Any] | None:
        """Ask the host to build the dataset of a folder's job; return {} if the host has ended."""
        try:
            send(self._end, {"build": str(files.path)})
        except OSError:
            return {}
        return None

    def fork(self, job: Job, files: TrialFolder, keep_logs: bool) -> Forked | str | None:
        """Fork a child for the job; return why the host refuses, or None if the host has ended.

        With `keep_logs` the child appends to the logs; the host has printed to them already.
        """
        request = {
            "folder": str(files.path),
            "model_path": job.model_path,
            "is_script": job.script is not None,
            "start": time.monotonic(),
            "keep_logs": keep_logs,
        }
        try:
            send(self._end, request)
            answer = self.answer()
        except OSError:
            return None
        if isinstance(answer.get("pid"), int):
            return Forked(answer["pid"], self)
        return str(answer["refused"]) if "refused" in answer else None

    def answers_within(self, seconds: float) -> bool:
        """Sleep until there is an answer to read, at most `seconds`; return True if there is."""
        return bool(select.select([self._end], [], [], seconds)[0])

    def answer(self) -> dict[str, Any]:
        """Return the next answer; {} if the host has ended.

        Raises:
            TimeoutError: the host sent nothing for `HOST_PATIENCE_SECONDS`.
        """
        return receive(self._end) or {}

    def close(self) -> None:
        """Kill the host; its children must have ended before."""
        self._end.close()
        self._process.kill()
        ended_within(self._process, _KILLED_SECONDS)
        self._process.poll()


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


class Hosts:
    """The warm hosts of one runner; call `close` to end them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Set what hosts get in addition to this process's environment."""
        self._environ = environ
        self._hosts: dict[_Environ, WarmHost] = {}
        self._name: str | None = None
        self._refused: dict[_Environ, str] = {}
        self._reasons: dict[tuple[_Environ, str | None], str] = {}

    @property
    def pids(self) -> frozenset[int]:
        """Process numbers of the hosts."""
        return frozenset(host.pid for host in self._hosts.values())

    def close(self) -> None:
        """End all hosts."""
        self._keep()

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
            return "--fresh-data"
        return self._reasons.get((_environ_of(job), job.model_path))

    def building(self, job: Job, files: TrialFolder) -> Building | None:
        """Let the job's host build the dataset; return None if there is nothing to build."""
        has_dataset = job.model_path is not None and job.script is None
        wanted = _dataset_of(job) if has_dataset and not self.why_not_shared(job) else None
        if job.host != self._name:
            self.close()
        self._name, host = job.host, self._hosts.get(_environ_of(job))
        if host is not None and (host.has_ended or host.built not in (None, wanted)):
            self._end(job)
            host = None
        if wanted is None or (host is not None and host.built == wanted):
            return None
        return Building(self._opened(job), files)

    def note(self, job: Job, building: Building) -> None:
        """Record how building ended; end a host that ran the workload without a usable dataset."""
        if building.is_done:
            self._opened(job).built = _dataset_of(job)
        else:
            self._reasons[_environ_of(job), job.model_path] = building.reason
        if building.has_spoilt_host:
            self._end(job)

    def fork(self, job: Job, files: TrialFolder, keep_logs: bool) -> Forked | str:
        """Fork the job's host, or return why that is impossible.

        A host that has died is replaced once.
        """
        reason = "the fork server does not answer"
        for _ in range(2):
            forked = self._opened(job).fork(job, files, keep_logs)
            if isinstance(forked, Forked):
                return forked
            self._end(job)
            if forked is not None:
                reason = forked
                break
            # A fork of the dead host may have taken the script's arguments out of the file.
            write_atomically(files.job, job_to_json(job))
        self._refused[_environ_of(job)] = reason
        return reason

    def _opened(self, job: Job) -> WarmHost:
        """Return the job's host, started if there is none; others with variables are ended."""
        environ = _environ_of(job)
        if environ != _PLAIN:
            self._keep(_PLAIN, environ)
        if environ not in self._hosts:
            variables = {**self._environ, **variables_needed(job)}
            self._hosts[environ] = WarmHost(variables)
        return self._hosts[environ]

    def _end(self, job: Job) -> None:
        """End the job's host, if there is one."""
        self._keep(*self._hosts.keys() - {_environ_of(job)})

    def _keep(self, *environs: _Environ) -> None:
        """End the hosts of other environments; each may hold a dataset."""
        for other in self._hosts.keys() - set(environs):
            self._hosts.pop(other).close()
