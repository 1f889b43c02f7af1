"""The study loop: ask for a configuration, measure it, judge it, store it in the study.

On several devices of one host, each has a thread, a runner, a folder and drift checks of its own.
Only the first one measures the baseline and confirms candidates. The threads share the study, the
breaker and the request to stop, which are safe to share.
"""

from __future__ import annotations

import shutil
import threading
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS, SEEDS, AccuracyVerdict
from autotune.configuration.constraints import Verdict, judge
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.context.inspection import check_device, inspect, inspection
from autotune.knobs.base import Value
from autotune.process.devices import Device, crowded_line
from autotune.process.runner import Runner
from autotune.process.stop import OUT_OF_TIME, BudgetedRunner, Stop, StoppableRunner
from autotune.searching.run.coverage import end_reason, is_worth_a_trial, widen_when_due
from autotune.searching.run.events import Noted, TrialEnded, TrialStarted, Warned
from autotune.searching.run.search_run import SearchRun, details_of
from autotune.searching.run.time_budget import process_seconds
from autotune.searching.trials.drift import drift_now
from autotune.study.facts import FinishedTrial, best_feasible
from autotune.study.storage import GRACE_SECONDS, check_still_there
from autotune.study.study import INTERRUPTED
from autotune.values.errors import TooManyLostError, UsageError
from autotune.values.measurement import Measurement, together
from autotune.values.outcome import Failure, Lost, Measured, OutOfMemory, TrialOutcome
from autotune.values.text import readable, size

_MOST_LOST_IN_A_ROW = 3
# Allocation is in pages, and a batch holds more than its samples.
_SHARED_SAFETY = 1.2
# A trial may take this multiple of the baseline's seconds. A compilation may take a multiple of
# its expected seconds on top, and without a time budget at least the allowance below.
_SLOWER_THAN_BASELINE = 6
_LEAST_DEADLINE_SECONDS = 60.0
_LEAST_OF_BUDGET, _LEAST_SHARE = 20.0, 1 / 10
_SLOWER_TO_COMPILE = 4
_COMPILE_ALLOWANCE_SECONDS = 300.0
# The first step with cudnn_benchmark tries the kernels of every convolution. Measured on an H200
# with ResNet-50: 11 to 19 s, at most when libraries were read from disk as well.
_KERNELS_ALLOWANCE_SECONDS = 60.0
_BLOCK_SECONDS = 0.1
# A larger deviation means that a process was disturbed.
_MOST_APART = 0.1
# Largest share of the seconds left for trials that compiling one may take.
_SHARE_TO_COMPILE = 1 / 4


class Breaker:
    """Count consecutive trials that failed, or were lost to faults of the machine.

    A measured trial resets both counts. Running out of memory is no failure: it shows the limit.
    The threads of a process, one per device, share one breaker.
    """

    def __init__(self, most_failures: int) -> None:
        self._lock = threading.Lock()
        self._most_failures = most_failures
        self._left_out: set[str] = set()
        self._failed: list[str] = []
        self._lost = 0

    def finished(self, trial: FinishedTrial) -> None:
        """Count a finished trial.

        Raises:
            TooManyLostError: `most_failures` trials failed in a row.
        """
        with self._lock:
            self._lost = 0
            if trial.details.outcome == "measured":
                self._failed.clear()
            elif trial.details.outcome != "out_of_memory":
                self._failed.append(trial.verdict.reason)
            if len(self._failed) < self._most_failures:
                return
            reasons = Counter(self._failed).most_common()
            raise TooManyLostError(
                f"{len(self._failed)} trials in a row failed, and nothing in between worked:\n"
                + "\n".join(f"  {count} x {why}" for why, count in reasons)
                + "\nSee the logs of the last trials. Rerun the command to continue with other "
                "settings; raise --max-failures to tolerate more failures."
            )

    def lost(self, reason: str) -> None:
        """Count a trial that was lost.

        Raises:
            TooManyLostError: three trials were lost in a row.
        """
        with self._lock:
            self._lost += 1
            if self._lost >= _MOST_LOST_IN_A_ROW:
                raise TooManyLostError(
                    f"{self._lost} trials in a row did not complete. The last one: {reason}. See "
                    "the logs of the last trials, then rerun the command to continue."
                )

    def leave_out(self, values: Iterable[str]) -> list[str]:
        """Return those of `values` that are new, and remember them as left out."""
        with self._lock:
            new = [value for value in values if value not in self._left_out]
            self._left_out.update(new)
        return new


# Samplers do not store their random state; the same seed would repeat a study's first proposals.
_SEED_STRIDE = 1_000_003
POLL_SECONDS = 0.5
"""Seconds between two looks at the trials of other workers, while there is nothing to run."""

Told = TrialStarted | TrialEnded | Noted
"""Events that the study loop yields."""
ExtraDevices = Mapping[Device, Runner]
"""Extra devices, each with the runner that runs its jobs."""


def run_trials(search: SearchRun, extra_devices: ExtraDevices) -> Iterator[Told]:
    """Run trials on all devices until a limit is reached or the space is exhausted.

    Raises:
        TooManyLostError: trial after trial was lost to faults of the infrastructure, or failed.
        KeyboardInterrupt: a person asked to stop; no trial is left running.
    """
    study, sampling = search.study, search.context.options.sampling
    seed = sampling.seed + _SEED_STRIDE * len(study.finished()) + zlib.crc32(search.worker.encode())
    study.use_sampler(sampling.sampler, seed, search.time_budget.trial_cost)
    study.is_affordable = lambda config: search.time_budget.can_win(config)  # noqa: PLW0108 (anew)
    study.news()  # drops those of earlier runs
    breaker = Breaker(search.context.options.budget.max_failures)
    others = (joined(search, *device) for device in extra_devices.items())
    members = [work(member, breaker) for member in (search, *others)]
    yield from members[0] if len(members) == 1 else _in_threads(members, search.stop)


def work(search: SearchRun, breaker: Breaker) -> Iterator[Told]:
    """Run trials one after the other on one device; other devices share the breaker."""
    study = search.study
    if search.worker or len(study.finished()) > 1:
        drift_now(search, resumed=True)
    while True:
        search.stop.check()
        claimed = _claim(search)
        trial = None
        if claimed is not None:
            trial = yield from _run_trial(search, *claimed)
        for told in study.news():
            yield search.trial_ended(told)
        for what in breaker.leave_out([*study.left_out(), *modes_put_off(search)]):
            yield Noted(f"left out: {what}")
        if isinstance(trial, FinishedTrial):
            breaker.finished(trial)
        elif trial == OUT_OF_TIME:
            continue
        elif trial is not None:
            breaker.lost(trial)
        # Another worker may still lose a trial that is left then.
        elif study.is_closed or (not study.others_run() and end_reason(search) is not None):
            return
        else:
            time.sleep(POLL_SECONDS)


def _claim(search: SearchRun) -> tuple[int, TrainingConfig] | None:
    """Claim the next trial, configurations of `warm_start` first; None if there is none."""
    context = search.context
    skip_dear_modes(search)
    widen_when_due(search)
    if end_reason(search) is not None:
        return None
    warm_start = context.options.sampling.warm_start
    return search.study.claim(context.trials, map(context.space.within, warm_start))


def _run_trial(
    search: SearchRun, number: int, config: TrainingConfig
) -> Generator[TrialStarted, None, FinishedTrial | str]:
    """Measure one configuration and store it; return the reason if the trial was lost."""
    try:
        yield TrialStarted(number, config)
        start = time.monotonic()
        with search.stop.trial():
            outcome, taken = _measured(search, config, number)
            if isinstance(outcome, Lost):
                cut_off = outcome.detail == OUT_OF_TIME
                search.study.lose(number, INTERRUPTED if cut_off else outcome.detail)
                return outcome.detail
            verdict, found = _judge(search, config, outcome)
    except BaseException:
        search.study.lose(number, INTERRUPTED)
        raise
    details = replace(
        details_of(outcome, time.monotonic() - start),
        timing_seconds=round(taken, 3),
        training=search.prober.training_of(config),
        assumed_samples=_assumed_samples(search, config, outcome, verdict),
    )
    if found is not None and found.qualities:
        is_told = search.prober.rule.metric != UNCHANGED
        quality = readable(fmean(found.qualities)) if is_told else None
        details = replace(details, quality=quality, seeds_decided=found.decision)
    trial = search.study.tell(number, verdict, details)
    check_still_there(search.context.options.study.storage)
    return trial


def _measured(search: SearchRun, config: TrainingConfig, number: int) -> tuple[TrialOutcome, float]:
    """Time a configuration in a process of its own; return the outcome and the seconds taken."""
    if (too_large := out_of_shared_memory(search, config)) is not None:
        return too_large, 0.0
    speed = drift_now(search)
    start = time.monotonic()
    plan = trial_plan(search, to_beat(search, speed))
    job = search.context.job(Measure(plan), config, deadline(search, config))
    outcome = search.runner.run(job, search.folder(f"{number:04d}"))
    taken = time.monotonic() - start
    if isinstance(outcome, Measured):
        taken = max(taken, process_seconds(outcome.measurement))
        outcome = Measured(search.comparable(outcome.measurement, speed))
    return outcome, taken


def out_of_shared_memory(search: SearchRun, config: TrainingConfig) -> OutOfMemory | None:
    """Return the OOM of /dev/shm, through which workers pass batches, that is sure to come.

    Containers keep it small. None if there is room, or if it does not exist.
    """
    queued = int(config["num_workers"] or 0) * int(config["prefetch_factor"] or 0)
    needed = queued * int(config["batch_size"] or 1) * search.context.facts.sample_bytes
    free = free_shared_bytes()
    if free is None or _SHARED_SAFETY * needed <= free:
        return None
    return OutOfMemory(
        "shared",
        f"not run: {queued} batches in the loader's queue take {size(needed)} of /dev/shm, "
        f"where {size(free)} are free",
        needed,
        foreseen=True,
    )


def free_shared_bytes() -> int | None:
    """Return the free bytes of /dev/shm; None where it does not exist."""
    try:
        return shutil.disk_usage(Path("/", "dev", "shm")).free
    except OSError:
        return None


def _judge(
    search: SearchRun, config: TrainingConfig, outcome: TrialOutcome
) -> tuple[Verdict, AccuracyVerdict | None]:
    """Return the verdict, and that on the accuracy if the configuration was fast enough for one."""
    objective, limit = search.objective_of(config), search.context.memory_limit_bytes
    verdict, best = judge(outcome, objective, limit), best_feasible(search.study.finished())
    if not (verdict.feasible and isinstance(outcome, Measured)):
        return verdict, None
    run = outcome.measurement
    most = run.samples_per_second_interval[1] / run.machine_speed
    if best is not None and objective.worth(most, 0.0) < (best.verdict.value or 0.0):
        return verdict, None  # it is clearly slower
    found = _accuracy_of(search, config, outcome.measurement, best)
    if isinstance(found, Lost):  # which says nothing about the configuration, nor of its samples
        return judge(outcome, search.objective_of(search.context.baseline), limit), None
    if not isinstance(found, AccuracyVerdict):
        failed = judge(found, objective, limit)
        return Verdict(verdict.value, failed.margins, f"short training: {failed.reason}"), None
    objective = search.objective_of(config)  # its seeds are known now
    return judge(outcome, objective, limit, found.margin, found.reason), found


def _assumed_samples(
    search: SearchRun, config: TrainingConfig, outcome: TrialOutcome, verdict: Verdict
) -> int | None:
    """Return the samples to the loss that a value assumes; None if seeds told them."""
    prober = search.prober
    is_told = prober.seeds_to_loss(config) or not prober.needs_probe(config)
    is_assumed = search.context.objective.to_loss and not is_told
    if not (is_assumed and verdict.value and isinstance(outcome, Measured)):
        return None
    run = outcome.measurement
    return round(run.samples_per_second / run.machine_speed / verdict.value)


def _accuracy_of(
    search: SearchRun, config: TrainingConfig, run: Measurement, best: FinishedTrial | None
) -> AccuracyVerdict | Failure:
    """Judge accuracy by numerical check and one seed; an undecided loss gets more seeds.

    So does a configuration whose `run` is worth more than the `best` trial's, as far as there is
    time besides confirming the present candidate.
    """
    prober = search.prober
    found = prober.verdict(config, most_seeds=1)
    if not isinstance(found, AccuracyVerdict) or found.decision != "undecided":
        return found
    worth = search.objective_of(config).value(run)
    leads = best is None or worth > (best.verdict.value or 0.0)
    if found.margin > 0 and not leads:
        return prober.verdict(config, len(SEEDS))
    training = prober.training_of(config)
    for count in (len(SEEDS), INCUMBENT_SEEDS) if leads else ():
        if not search.time_budget.has_seeds(training, count):
            break
        found = prober.verdict(config, count)
        if not isinstance(found, AccuracyVerdict) or found.is_final:
            break
    return found


def check_alike(search: SearchRun, extra_devices: ExtraDevices) -> Iterator[Warned]:
    """Refuse devices that differ from the first one; warn of devices that others fill.

    Raises:
        UsageError: a device differs from the first one, two names mean the same device, or a script
            trains elsewhere.
    """
    context = search.context
    check_device(context.traits.seen, context.options.resources.device)
    seen = {context.device_uuid: context.machine.device}
    for device, runner in extra_devices.items():
        folder = context.options.study.folder / "trials" / "inspect" / device.folder_name
        inspected = inspect(runner, inspection(device.torch_name, None), folder)
        found, uuid = inspected.machine, inspected.device_uuid
        if found.fingerprint != context.machine.fingerprint:
            raise UsageError(
                f"--device: {device.name} ({found.device_name}) is not like "
                f"{context.machine.device} ({context.machine.device_name}), so that trials on them "
                "cannot be compared. Give each a search of its own."
            )
        if uuid and uuid in seen:
            raise UsageError(f"--device: {device.name} and {seen[uuid]} are one device.")
        seen[uuid] = device.name
        limit = context.memory_limit_bytes
        if crowded := crowded_line(device.name, inspected.device_free_bytes, limit):
            yield Warned(crowded)


def run_together(search: SearchRun, extra_devices: ExtraDevices) -> Iterator[Told]:
    """Do as `run_trials`, then wait for trials of other hosts."""
    yield from run_trials(search, extra_devices)
    search.study.close()
    longest = search.context.options.budget.trial_timeout_seconds + GRACE_SECONDS
    until = time.monotonic() + longest
    while search.study.is_shared and search.study.others_run() and time.monotonic() < until:
        search.stop.check()
        time.sleep(POLL_SECONDS)
    for told in search.study.news():
        yield search.trial_ended(told)


def _in_threads(members: Sequence[Iterator[Told]], stop: Stop) -> Iterator[Told]:
    """Yield the events of all members, each in a thread of its own; a failure stops all."""
    news: SimpleQueue[Told | BaseException | None] = SimpleQueue()

    def fill(events: Iterator[Told]) -> None:
        try:
            for event in events:
                news.put(event)
            news.put(None)
        except BaseException as error:
            news.put(error)

    failed: BaseException | None = None
    with ThreadPoolExecutor(len(members)) as pool:  # its end waits for all
        try:
            running = len([pool.submit(fill, member) for member in members])
            while running:
                told = news.get()
                if isinstance(told, BaseException):  # the other devices finish their trials
                    stop.request()
                    failed = failed or told
                if told is None or isinstance(told, BaseException):
                    running -= 1
                else:
                    yield told
        except BaseException:
            stop.request()
            raise
    if failed is not None:
        raise failed


def joined(search: SearchRun, device: Device, runner: Runner) -> SearchRun:
    """Return the search run for another device, with a folder of its own."""
    options = search.context.options
    folder = options.study.folder / "workers" / device.folder_name
    context = replace(
        search.context,
        options=replace(options, study=replace(options.study, folder=folder)),
        machine=replace(search.context.machine, device=device.torch_name),
    )
    stoppable = StoppableRunner(BudgetedRunner(runner, search.clock), search.stop)
    return replace(search, context=context, runner=stoppable, worker=f"@{device.name}")


def trial_plan(search: SearchRun, incumbent_seconds_per_sample: float | None = None) -> MeasurePlan:
    """Return the plan of a trial's timing.

    The precision is no finer than the noise between processes of the same settings. Blocks are
    short; more of them follow where the first few are not precise enough. A trial that is clearly
    slower than the incumbent is stopped early; None stops none.
    """
    usual = MeasurePlan()
    apart = min(search.time_budget.noise, _MOST_APART)
    return replace(
        usual,
        block_seconds=_BLOCK_SECONDS,
        precision=max(usual.precision, apart),
        incumbent_seconds_per_sample=incumbent_seconds_per_sample,
        least_samples=least_samples(search),
    )


def least_samples(search: SearchRun) -> int:
    """Return the samples among which the baseline has enough of its rare slow steps, if it has any.

    It is 0 where its steps are even.
    """
    runs = search.study.notes.baseline_runs or ()
    steps = together(run.steps for run in runs)
    if steps is None or not steps.is_uneven:
        return 0
    samples = sum(block.samples for run in runs for block in run.blocks if not block.is_disturbed)
    return round(steps.steps_to_time * samples / steps.count)


def to_beat(search: SearchRun, machine_speed: float) -> float | None:
    """Return the seconds per sample to beat: the upper bound of the incumbent's interval.

    It is scaled to the machine's speed now. It is None without an incumbent, and for a time, which
    a slower trial may win by a faster start, or by fewer samples to a loss.
    """
    best = best_feasible(search.study.finished())
    run = None if best is None else best.details.measurement
    if run is None or search.context.objective.name != "throughput":
        return None
    return run.machine_speed / (run.samples_per_second_interval[0] * machine_speed)


def deadline(search: SearchRun, config: TrainingConfig) -> float:
    """Return the seconds after which a trial of `config` is assumed to hang."""
    baseline_seconds = search.time_budget.run_seconds()
    budget, least = search.context.time_budget_seconds, _LEAST_DEADLINE_SECONDS
    allowance = _SLOWER_TO_COMPILE * search.time_budget.compiling()(config["compile_mode"])
    if budget is not None:
        least = min(least, max(_LEAST_OF_BUDGET, _LEAST_SHARE * budget))
    elif allowance:
        allowance = max(_COMPILE_ALLOWANCE_SECONDS, allowance)
    if search.context.machine.has_accelerator and config["cudnn_benchmark"]:
        allowance += _KERNELS_ALLOWANCE_SECONDS
    # A process that cannot be forked builds its dataset itself.
    building = search.context.dataset_seconds
    seconds = max(least, _SLOWER_THAN_BASELINE * baseline_seconds) + allowance + building
    return float(min(seconds, search.context.options.budget.trial_timeout_seconds))


def skip_dear_modes(search: SearchRun) -> None:
    """Skip the compile modes that would take too much of the time left for trials.

    The baseline's own is never skipped. Once nothing else is worth a trial, one may take all of it.
    """
    search.study.skipped_modes = _modes_beyond(search, _SHARE_TO_COMPILE)
    if search.study.skipped_modes and not is_worth_a_trial(search):
        search.study.skipped_modes = _modes_beyond(search, 1.0)


def modes_put_off(search: SearchRun) -> list[str]:
    """Return the compile modes that were skipped before they were tried, each with the reason."""
    tried = {trial.config["compile_mode"] for trial in search.study.finished()}
    return [
        f"compile_mode={mode} for now: compiling is expected to take more than a quarter of the "
        "time left"
        for mode in sorted(map(str, search.study.skipped_modes - tried))
    ]


def _modes_beyond(search: SearchRun, share: float) -> frozenset[Value]:
    left = search.clock.left - search.time_budget.conclusion_seconds()
    affordable = share * max(0.0, left)
    compiling = search.time_budget.compiling()
    modes = set(search.context.space.domains.get("compile_mode", ()))
    others = modes - {None, search.context.baseline["compile_mode"]}
    return frozenset(mode for mode in others if compiling(mode) > affordable)
