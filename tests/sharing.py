"""Several writers of one study: devices, workers, and what they left in the storage."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.configuration.job import Job
from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import SearchSpace
from autotune.context.options import SearchOptions, WorkloadOptions
from autotune.process.devices import Device
from autotune.process.stop import Stop
from autotune.searching.run.events import Event
from autotune.searching.search import search
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.study.study import TuningStudy, open_study
from autotune.values.machine import Machine
from autotune.values.outcome import Inspected, TrialOutcome
from factories import cuda_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of
from study_factories import THROUGHPUT


class OnDevice(ScriptedRunner):
    """A runner on a device of its own, whose trials take a moment."""

    def __init__(self, number: int, machine: Machine | None = None, seconds: float = 0.05) -> None:
        super().__init__(lambda config, phase: at(10 * batch_of(config)))
        machine = machine or cuda_machine()
        self.inspected = Inspected(replace(machine, device=f"cuda:{number}"), FACTS)
        self.seconds = seconds

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        outcome = super().run(job, folder)
        if self.asked[-1].phase == "trial":
            time.sleep(self.seconds)
        return outcome


def searched_on(
    options: SearchOptions, *runners: ScriptedRunner, stop: Stop | None = None
) -> Iterator[Event]:
    """The events of a search on several devices of this host."""
    first, *others = runners
    beside = {Device(f"cuda:{number}"): runner for number, runner in enumerate(others, 1)}
    return search(options, first, stop, beside)


def host_of(options: SearchOptions, number: int) -> Path:
    """The folder of the study on another host."""
    return options.study.folder / f"host-{number}"


def joined(
    options: SearchOptions,
    number: int,
    runner: ScriptedRunner,
    stop: Stop | None = None,
    script: ScriptOptions | None = None,
    **changes: Any,
) -> Iterator[Event]:
    """The events of a worker that joins this search on another host."""
    place, workload = options.study, WorkloadOptions(options.workload.model_path, script)
    folder, device = host_of(options, number), Device(runner.inspected.machine.device)
    asked = WorkerOptions(place.name, place.storage or "", workload, folder, device)
    return join(replace(asked, **changes), runner, stop or Stop())


@contextmanager
def opened(storage: str, space: SearchSpace, name: str = "s") -> Iterator[TuningStudy]:
    """A study, as one of several processes has it."""
    study = open_study(name, storage, space, THROUGHPUT)
    study.use_sampler("RandomSampler", seed=0)
    try:
        yield study
    finally:
        study.disconnect()


def in_threads(*actions: Callable[[], Any]) -> list[Any]:
    """Do all of this at once; what each of them returned, or raised."""
    results: list[Any] = [None] * len(actions)

    def keep(place: int) -> None:
        try:
            results[place] = actions[place]()
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=keep, args=(place,)) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
