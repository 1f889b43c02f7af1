"""Run jobs in processes of their own: start, watch and end them, and return their outcomes.

A `Runner` is anything that answers a job with an outcome. The parent imports neither torch nor the
user's code, and sleeps while a child is timed, except for heartbeats to a server.

Warm hosts are processes that have imported torch and fork a child for each job. There is one host
of the environment as it is, and one with the variables that the last settings asked for. Both end
when a job names another host, and one does when a job needs another dataset of it, or other
variables. A dataset that forks cannot use is built by each child itself for the rest of the run.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any, Protocol, Self

from autotune.configuration.job import Job, job_to_json, without_arguments
from autotune.configuration.script import Keep, Script
from autotune.configuration.training_config import TrainingConfig, environ_of, own_of_kind
from autotune.knobs.base import Value
from autotune.process import children
from autotune.process.children import RunningChild, ended_within
from autotune.process.common.child_ties import lifeline, receive, send
from autotune.process.common.trial_folder import (
    EVALUATION,
    NUMERICS_CHECK,
    TrialFolder,
    make_private,
    write_atomically,
)
from autotune.process.ranks import Ranks, outcome_of_ranks
from autotune.values.machine import oom_kills
from autotune.values.outcome import (
    Crashed,
    Lost,
    Measured,
    OutOfMemory,
    TrialOutcome,
    outcome_to_json,
)

# Errors for a lack of processes, memory or file descriptors.
_NOTHING_LEFT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
HOST_PATIENCE_SECONDS = 120.0
"""Seconds to wait for a warm host: it may import torch on a busy machine."""
# Seconds for a killed host to be gone; a longer wait is inside the kernel and may have no end.
_KILLED_SECONDS = 10.0
# Of itself or a worker; other signals are no sign of lacking memory.
_KILLED = re.compile("SIGKILL|DataLoader worker").search
_Dataset = tuple[str | None, dict[str, Value]]
_Environ = frozenset[tuple[str, str]]
_PLAIN: _Environ = frozenset()


class Runner(Protocol):
    """A protocol for objects that answer jobs with outcomes, one at a time."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job` with its files in `folder`; failure is an outcome, not an exception."""


class SubprocessRunner:
    """A runner that runs each job in a process of its own, and ends all that it started.

    The process is forked from the warm host that the job names, if that is safe. Call `close`, or
    use it in a `with` statement, to end the hosts.
    """

    def __init__(
        self,
        compile_cache: Path,
        warm: bool = True,
        environ: Mapping[str, str] = MappingProxyType({}),
        is_cancelled: Callable[[], bool] = lambda: False,
        keep: Path | None = None,
    ) -> None:
        """Set up a runner without starting anything.

        Args:
            compile_cache: Inductor's cache, one per study: repeated compilations are cheap, and the
                first is known to be cold.
            warm: use warm hosts where possible.
            environ: what children get in addition to this process's, such as `Device.environ`.
            is_cancelled: called about once a second; True ends the running job.
            keep: folder, made when it is needed, for files as they were before a script overwrote
                or deleted them; None to keep none.
        """
        self._family = children.Family()
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(compile_cache.resolve())}
        self._environ = {**self._family.environ, **cache, **environ}
        self._is_cancelled = is_cancelled
        self._keep_in = None if keep is None else keep.resolve()
        self._began: float | None = None
        self._hosts = Hosts(self._environ)
        self._why_fresh = "" if warm else "no fork server here"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm hosts."""
        self._hosts.close()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Start a child, wait for it, and leave no process behind.

        Raises:
            KeyboardInterrupt: this runner was cancelled meanwhile.
        """
        # Absolute, because the user's code may change its working directory.
        files = TrialFolder(folder.resolve())
        make_private(files.path)
        files.remove_earlier()
        keep = self._keep(files)

        def placed(script: Script) -> Script:
            workdir = None if script.workdir is None else str(files.workdir_in(script.workdir))
            return replace(script, keep=keep, workdir=workdir)

        job = job.calling(placed)
        write_atomically(files.job, job_to_json(job))
        try:
            outcome = self._watched(job, files)
        except OSError as error:
            if error.errno not in _NOTHING_LEFT:
                raise
            outcome = Lost(f"no process could be started: {error.strerror}")
        finally:
            if (hidden := without_arguments(job)) != job:  # in case the child has not done so
                write_atomically(files.job, job_to_json(hidden))
            files.remove_workdirs()
        write_atomically(files.outcome, outcome_to_json(outcome))
        return outcome

    def _keep(self, files: TrialFolder) -> Keep | None:
        """Return where scripts keep files that are older than the first job."""
        if self._keep_in is None:
            return None
        if self._began is None:  # by the clock of the file system
            with TemporaryFile(dir=files.path) as new:
                self._began = os.fstat(new.fileno()).st_ctime
        return Keep(str(self._keep_in), self._began)

    def _watched(self, job: Job, files: TrialFolder) -> TrialOutcome:
        """Run a child for the job to its end and return its outcome; no process of it is left."""
        kills = oom_kills()
        begun, outcome = self._build(job, files)
        if outcome is not None:
            return outcome
        launched = self._launch(job, files, keep_logs=begun is not None)
        child = RunningChild(launched, files, Ranks(job, files) if job.is_of_ranks else None)
        if begun is not None:  # one deadline for both, as in a process that builds itself
            child.begun = begun
        try:
            outcome = child.watch(job, self._is_cancelled)
        finally:
            self._end(child, files, self._hosts.pids)
        if job.is_of_ranks:
            outcome = outcome_of_ranks(files, outcome)
            shutil.rmtree(files.launcher_logs, ignore_errors=True)
        if outcome is None:
            outcome = child.outcome_of_exit()
        if isinstance(outcome, Crashed) and oom_kills() > kills and _KILLED(outcome.detail):
            outcome = OutOfMemory("host", f"{outcome.detail} by the kernel", child.peak_bytes)
        if isinstance(outcome, OutOfMemory) and files.phase in (EVALUATION, NUMERICS_CHECK):
            return replace(outcome, during=files.phase)
        if isinstance(outcome, Measured) and job.device == "cpu":
            # The child has not looked at the time before its blocks.
            peak = max(outcome.measurement.peak_memory_bytes, child.peak_bytes)
            return Measured(replace(outcome.measurement, peak_memory_bytes=peak))
        return outcome

    def _end(self, child: RunningChild, files: TrialFolder, hosts: frozenset[int]) -> None:
        """End all processes of a child, these hosts excepted, and shorten its logs."""
        is_hurried = self._is_cancelled()
        child.end(self._family, hosts, children.HURRIED if is_hurried else children.PATIENT)
        for log in files.logs:
            children.shorten(log)

    def _build(self, job: Job, files: TrialFolder) -> tuple[float | None, TrialOutcome | None]:
        """Let the job's host build its dataset, unless it has already or forks cannot use it.

        Building is watched as a trial is, since the user's code may fail, hang or pass the memory
        limit. Return the monotonic time at which it began, if the dataset was built now, and the
        job's outcome, if it failed.
        """
        self._hosts.make_room(job)
        building = None if self._why_fresh_for(job) else self._hosts.building(job, files)
        if building is None:
            return None, None
        files.launch.write_text("in the fork server\n", encoding="utf-8")
        child = RunningChild(building, files)
        try:
            while not building.begins_within(children.SAMPLE_SECONDS):
                if self._is_cancelled():
                    raise KeyboardInterrupt
                if time.monotonic() > child.begun + HOST_PATIENCE_SECONDS:
                    return None, None
            child.begun = time.monotonic()
            outcome = child.watch(job, self._is_cancelled)
        finally:
            if building.has_spoilt_host:
                self._end(child, files, self._hosts.pids - {building.pid})
            self._hosts.note(job, building)
        return (child.begun if building.is_done else None), outcome

    def _launch(self, job: Job, files: TrialFolder, keep_logs: bool) -> children.Launched:
        """Start the child for a job in the cheapest safe way."""
        why_fresh = self._why_fresh_for(job)
        if not why_fresh:
            forked = self._hosts.fork(job, files, keep_logs)
            if isinstance(forked, Forked):
                reason = self._hosts.why_not_shared(job)
                anew = f"; dataset built again: {reason}" if reason else ""
                variables = ", ".join(variables_needed(job))
                how = f"forked with {variables}" if variables else "forked"
                files.launch.write_text(f"{how}{anew}\n", encoding="utf-8")
                return forked
            why_fresh = forked
        how = why_fresh if job.is_of_ranks else f"fresh interpreter: {why_fresh}"
        files.launch.write_text(f"{how}\n", encoding="utf-8")
        environ = {**self._environ, **variables_needed(job)}
        return children.FreshInterpreter(job, files, environ)

    def _why_fresh_for(self, job: Job) -> str:
        """Return why a job needs a new interpreter; "" if it may be forked."""
        if job.launch:
            return f"started by {shlex.join(job.launch)}"
        if job.processes > 1:
            return "started by torch's launcher"
        if job.host is None:
            return "asked for"
        return self._why_fresh or self._hosts.why_not_forked(job)


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
        self._end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
            "sets_environment": not job.builds_dataset,
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
        is_shared = job.builds_dataset and not self.why_not_shared(job)
        wanted = _dataset_of(job) if is_shared else None
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
