"""Several devices of one host work on one search: a thread and a child for each, one writer.

The first device is the search's own: it alone measures the baseline and confirms the answer.
Threads share the study, the breaker and the request to stop, each of which has a lock of its own or
is replaced as a whole; runner, folder and drift are a device's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from queue import SimpleQueue

from autotune.errors import UsageError
from autotune.tuning.breaker import Breaker
from autotune.tuning.events import Warned
from autotune.tuning.running.devices import Device
from autotune.tuning.running.neighbours import neighbours, shared_line
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.stop import StoppableRunner
from autotune.tuning.scene import inspect, inspection
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.trials import POLL_SECONDS, Told, prepare, run_trials, work

Mates = Mapping[Device, Runner]
"""The other devices, each with what runs jobs there."""


def check_alike(session: Session, mates: Mates) -> Iterator[Warned]:
    """Refuse devices whose trials could not be compared with the first one's; warn of busy ones.

    Raises:
        UsageError: one is not like the first, or is the first.
    """
    scene = session.scene
    seen = {scene.device_uuid: scene.machine.device}
    for device, runner in mates.items():
        folder = scene.options.folder / "trials" / "inspect" / device.folder_name
        inspected = inspect(runner, inspection(device.torch_name, None), folder)
        found, uuid = inspected.machine, inspected.device_uuid
        if found.fingerprint != scene.machine.fingerprint:
            raise UsageError(
                f"--devices: {device.name} ({found.device_name}) is not like "
                f"{scene.machine.device} ({scene.machine.device_name}), so that trials on them "
                "cannot be compared. Give each a search of its own."
            )
        if uuid and uuid in seen:
            raise UsageError(f"--devices: {device.name} and {seen[uuid]} are one device.")
        seen[uuid] = device.name
        if others := neighbours(uuid):
            yield Warned(shared_line(device.name, others))


def run_together(session: Session, accuracy: Accuracy, mates: Mates) -> Iterator[Told]:
    """Trials on all devices until none is left, and until those of other hosts are done, too.

    Raises:
        TooManyLostError: on one of them trial after trial was lost or failed.
        KeyboardInterrupt: a person asked to stop.
    """
    if mates:
        yield from _run_threads(session, accuracy, mates)
    else:
        yield from run_trials(session, accuracy)
    session.study.close()
    while session.study.others_run():
        session.stop.check()
        time.sleep(POLL_SECONDS)
    for told in session.study.news():
        yield session.trial_ended(told)


def _run_threads(session: Session, accuracy: Accuracy, mates: Mates) -> Iterator[Told]:
    news: SimpleQueue[Told | BaseException | None] = SimpleQueue()

    def fill(events: Iterator[Told]) -> None:
        try:
            for event in events:
                news.put(event)
            news.put(None)
        except BaseException as error:
            news.put(error)

    prepare(session, accuracy)
    breaker = Breaker(session.scene.options.max_failures)
    members = [work(session, accuracy, breaker)]
    for device, runner in mates.items():
        members.append(work(*joined(session, accuracy, device, runner), breaker))
    threads = [threading.Thread(target=fill, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    running = len(threads)
    failed: BaseException | None = None
    try:
        while running:
            told = news.get()
            if isinstance(told, BaseException):  # the others finish their trials, which count
                session.stop.request()
                failed = failed or told
            if told is None or isinstance(told, BaseException):
                running -= 1
            else:
                yield told
    except BaseException:
        session.stop.request()
        raise
    finally:
        for thread in threads:
            thread.join()
    if failed is not None:
        raise failed


def joined(
    session: Session, accuracy: Accuracy, device: Device, runner: Runner
) -> tuple[Session, Accuracy]:
    """The same search on another device, with a folder of its own."""
    options = session.scene.options
    folder = options.folder / "workers" / device.folder_name
    scene = replace(
        session.scene,
        options=replace(options, folder=folder),
        machine=replace(session.scene.machine, device=device.torch_name),
    )
    stoppable = StoppableRunner(runner, session.stop)
    prober = replace(accuracy.prober, scene=scene, runner=stoppable)
    member = replace(session, scene=scene, runner=stoppable, worker=f"@{device.name}")
    return member, replace(accuracy, prober=prober)
