"""Parallel trials on several devices of one host: one thread and one child process per device.

The first device alone measures the baseline and confirms candidates. The threads share the study,
the breaker and the stop request, which are safe to share. Each device has its own runner, folder
and drift checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from queue import SimpleQueue

from autotune.context.budget_clock import BudgetedRunner
from autotune.context.inspection import inspect, inspection
from autotune.context.script_facts import check_device
from autotune.process.devices import Device, crowded_line, neighbours, shared_line
from autotune.process.runner import Runner
from autotune.process.stop import StoppableRunner
from autotune.searching.run.events import Warned
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.trials.trials import POLL_SECONDS, Breaker, Told, prepare, run_trials, work
from autotune.study.storage import GRACE_SECONDS
from autotune.values.errors import UsageError

ExtraDevices = Mapping[Device, Runner]
"""Extra devices, each with the runner that runs its jobs."""


def check_alike(search: SearchRun, extra_devices: ExtraDevices) -> Iterator[Warned]:
    """Refuse devices that differ from the first one; warn of devices that others use.

    Raises:
        UsageError: a device differs from the first one, two names mean the same device, or a script
            trains elsewhere.
    """
    context = search.context
    if context.observed is not None:
        check_device(context.observed, context.options.resources.device)
    seen = {context.device_uuid: context.machine.device}
    for device, runner in extra_devices.items():
        folder = context.options.study.folder / "trials" / "inspect" / device.folder_name
        inspected = inspect(runner, inspection(device.torch_name, None), folder)
        found, uuid = inspected.machine, inspected.device_uuid
        if found.fingerprint != context.machine.fingerprint:
            raise UsageError(
                f"--devices: {device.name} ({found.device_name}) is not like "
                f"{context.machine.device} ({context.machine.device_name}), so that trials on them "
                "cannot be compared. Give each a search of its own."
            )
        if uuid and uuid in seen:
            raise UsageError(f"--devices: {device.name} and {seen[uuid]} are one device.")
        seen[uuid] = device.name
        if others := neighbours(uuid):
            yield Warned(shared_line(device.name, others))
        limit = context.memory_limit_bytes
        if crowded := crowded_line(device.name, inspected.device_free_bytes, limit):
            yield Warned(crowded)


def run_together(
    search: SearchRun, accuracy: Accuracy, extra_devices: ExtraDevices
) -> Iterator[Told]:
    """Run trials on all devices until none is left, then wait for those of other hosts.

    Raises:
        TooManyLostError: trial after trial was lost or failed on one of the devices.
        KeyboardInterrupt: a person asked to stop.
    """
    if extra_devices:
        yield from _run_threads(search, accuracy, extra_devices)
    else:
        yield from run_trials(search, accuracy)
    search.study.close()
    longest = search.context.options.budget.trial_timeout_seconds + GRACE_SECONDS
    until = time.monotonic() + longest
    while search.study.is_shared and search.study.others_run() and time.monotonic() < until:
        search.stop.check()
        time.sleep(POLL_SECONDS)
    for told in search.study.news():
        yield search.trial_ended(told)


def _run_threads(
    search: SearchRun, accuracy: Accuracy, extra_devices: ExtraDevices
) -> Iterator[Told]:
    news: SimpleQueue[Told | BaseException | None] = SimpleQueue()

    def fill(events: Iterator[Told]) -> None:
        try:
            for event in events:
                news.put(event)
            news.put(None)
        except BaseException as error:
            news.put(error)

    prepare(search, accuracy)
    breaker = Breaker(search.context.options.budget.max_failures)
    members = [work(search, accuracy, breaker)]
    for device, runner in extra_devices.items():
        members.append(work(*joined(search, accuracy, device, runner), breaker))
    threads = [threading.Thread(target=fill, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    running = len(threads)
    failed: BaseException | None = None
    try:
        while running:
            told = news.get()
            if isinstance(told, BaseException):  # the other devices finish their current trials
                search.stop.request()
                failed = failed or told
            if told is None or isinstance(told, BaseException):
                running -= 1
            else:
                yield told
    except BaseException:
        search.stop.request()
        raise
    finally:
        for thread in threads:
            thread.join()
    if failed is not None:
        raise failed


def joined(
    search: SearchRun, accuracy: Accuracy, device: Device, runner: Runner
) -> tuple[SearchRun, Accuracy]:
    """Return search run and accuracy judgement for another device, with a folder of its own."""
    options = search.context.options
    folder = options.study.folder / "workers" / device.folder_name
    context = replace(
        search.context,
        options=replace(options, study=replace(options.study, folder=folder)),
        machine=replace(search.context.machine, device=device.torch_name),
    )
    stoppable = StoppableRunner(BudgetedRunner(runner, search.clock), search.stop)
    prober = replace(accuracy.prober, context=context, runner=stoppable)
    member = replace(search, context=context, runner=stoppable, worker=f"@{device.name}")
    return member, replace(accuracy, prober=prober)
