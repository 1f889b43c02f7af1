"""Run a script as a trial: apply the job's settings, time the training, end it in mid-training.

The process exits from within a step, without unwinding. So no `finally:` of the script saves a
checkpoint of the partly trained model.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import torch

from autotune.configuration import job as jobs
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import spelled
from autotune.knobs.torch_private import draw_as_eager_does
from autotune.numerics.trajectory import nudge
from autotune.process.common.child_ties import this_place
from autotune.process.common.trial_folder import FIRST_STEPS, TrialFolder
from autotune.scripting.interpose import SETTLED, Interposition
from autotune.scripting.loaders import BatchStream
from autotune.scripting.losses import LossRecorder, LossTasks
from autotune.scripting.observation import Observation
from autotune.scripting.observed_training import Stepper
from autotune.scripting.run import Calls
from autotune.training import memory
from autotune.training.ranks import World, before_parting, joined, obstacle
from autotune.training.timing import CompileClock, StepRequests, TimedTraining, synchronize
from autotune.training.training_setup import seed_everything
from autotune.values import outcome as outcomes
from autotune.values.measurement import Measurement

NO_STEP = (
    "it ended without training: no torch optimizer stepped and nothing called backward in this "
    "process (autotune does not see processes that a script starts itself)"
)
TOO_FEW = (
    "it ended after {steps} steps, too few to be timed; let it train longer, such as for more "
    "epochs (the search takes no longer)"
)
_IN_TURN = (
    "it trains one model after another, the first for {steps} steps, too few to be timed; let it "
    "train only one of them, and longer"
)

# Relative, as in float16.
_ROUNDING = 2.0**-10
_SHOWN = 80

Leave = Callable[[outcomes.TrialOutcome], NoReturn]
Requests = StepRequests[outcomes.TrialOutcome]


class Trial:
    """One run of a script on behalf of a job."""

    def __init__(self, job: jobs.Job, folder: TrialFolder, leave: Leave, calls: Calls) -> None:
        assert job.script is not None
        config = TrainingConfig.of(job.config or {})
        self.job, self._folder, self._leave = job, folder, leave
        asked, by_flag = frozenset(job.script.asked), frozenset(job.script.by_flag)
        own = job.script.own
        self.interposition = Interposition(config, asked, by_flag, own, is_trial=True)
        self.observed = self.interposition.observed
        self.observed.passed = calls.passed
        models, loaders = self.interposition.calls, self.interposition.loaders
        self.stream = BatchStream(lambda: synchronize(self.observed.device), models, loaders)
        self.observed.batches = self.stream
        self.compiler = CompileClock()
        self.losses = LossTasks(self.stream, LossRecorder(lambda: self.observed.trained))
        by_loss = isinstance(job.task, jobs.Probe) and job.task.loss is not None
        self._reads_losses = by_loss or isinstance(job.task, jobs.Observe | jobs.TakeFirstSteps)
        self._printed = _Printed(folder, job.script.metric or "")
        self._observation: Observation | None = None
        self._requests: Requests | None = None
        self._steps_left = 0
        self._start = self._launched = self._trains = 0.0
        self._rates: tuple[float, ...] = ()
        self._changes = 0
        place = this_place() if job.is_of_ranks else None
        self._processes = 1 if place is None else place.size
        self._is_fork = False
        os.register_at_fork(after_in_child=partial(setattr, self, "_is_fork", True))

    @property
    def world(self) -> World:
        """The processes that train the script together."""
        return self.losses.world

    @property
    def deadline(self) -> float:
        """The end of the process on the monotonic clock."""
        return self._launched + self.job.deadline_seconds

    def begin(self, process_start: float) -> None:
        """Apply the settings and start to watch, just after torch was imported.

        `process_start` is the parent's monotonic clock when it launched this process, in seconds.
        """
        self._start, self._launched = time.monotonic(), process_start
        self.interposition.install()
        task, stepping = self.job.task, self.interposition.stepping
        if isinstance(task, jobs.Observe):
            self._observation = Observation(self, task)
        if isinstance(task, jobs.Probe | jobs.TakeFirstSteps | jobs.Observe):
            seed_everything(task.seeds[0] if isinstance(task, jobs.Probe) else self.job.seed)
        if self._reads_losses:
            before_parting(self.losses.gather)
            self.losses.recorder.watch()
            stepping.losses.append(self.losses.recorder.note)
            stepping.befores.append(self.losses.recorder.before)
        stepping.listeners.append(self._after_step)

    def _carried_out(self) -> Requests:
        """Return what asks for the steps of the task."""
        match self.job.task:
            case jobs.Measure(plan):
                return self._timing(plan)
            case jobs.Probe() as task:
                return self._probing(task)
            case jobs.TakeFirstSteps() as task:
                return self._first_steps(task)
            case jobs.Observe():
                assert self._observation is not None
                return self._observation.observing()
            case _:
                raise NotImplementedError(f"a script cannot be asked to {self.job.task.kind}")

    def ended(self) -> outcomes.TrialOutcome:
        """Return the outcome of a script that ended by itself."""
        task, steps = self.job.task, self.stream.steps
        if not steps:
            return outcomes.UserError(NO_STEP, "")
        if self._observation is not None and (seen := self._observation.ended()):
            return seen
        if not isinstance(task, jobs.Probe):
            return outcomes.UserError(TOO_FEW.format(steps=steps), "")
        if task.loss:
            return self.losses.probed(task, self._start)
        if self._folder.rank:
            return outcomes.Probed((), 0.0)  # rank 0 reports what it printed
        try:
            found = self._printed.last()
        except ValueError as error:
            return outcomes.UserError(str(error), "")
        if found is None:
            return outcomes.UserError("nothing that it printed matches --metric-regex", "")
        return self._probed(found)

    def _after_step(self, optimizer: Stepper) -> None:
        """Count down the steps that the task asked for, and resume it when they are taken."""
        observed, stream, recorder = self.observed, self.stream, self.losses.recorder
        if self._is_fork:
            return  # another process of the script
        if optimizer is not None and self._reads_losses:
            recorder.stepped_by(optimizer)
        if not observed.counts(optimizer):
            return
        try:
            if observed.changes != self._changes:
                self._changes = observed.changes
                if observed.is_of_another_model(optimizer):
                    self._leave(outcomes.UserError(_IN_TURN.format(steps=stream.steps), ""))
                stream.pass_over()
            stream.stepped()
            if self._reads_losses:
                recorder.stepped(stream.samples)
            if stream.steps == 1:
                self._meet()
                self._requests = self._carried_out()
            if stream.steps == outcomes.SETTLED_STEP:
                self.interposition.stepping.befores.clear()
            self._steps_left -= 1
            if stream.steps >= SETTLED and self._steps_left <= 0:
                assert self._requests is not None
                self._steps_left = next(self._requests)
        except StopIteration as end:
            self._leave(self._with_start(end.value))
        except Exception as error:
            traceback.print_exception(error)
            self._leave(outcomes.Lost(f"internal error of autotune: {error!r}"))

    def _meet(self) -> None:
        """Check after the first step that this training can be timed; leave the script if not.

        The device is known now; asking for it earlier would take the choice from the script. So
        are its processes, all of which have taken that step.
        """
        self._folder.enter_phase(FIRST_STEPS)
        self._trains = time.monotonic()
        memory.limit_device_memory(self.observed.device, self.job.memory_limit_bytes)
        if why := obstacle(self._processes):
            self._leave(outcomes.UserError(why, ""))
        self._rates = self.observed.learning_rates
        assert self.job.script is not None
        wanted = self.job.script.learning_rates
        if wanted and not _are_equal(wanted, self._rates):
            self._leave(outcomes.NotApplied("lr", _listed(wanted), _listed(self._rates)))
        self.losses.world = joined(self.job.deadline_seconds)

    def _with_start(self, outcome: outcomes.TrialOutcome) -> outcomes.TrialOutcome:
        """Add the seconds until training began; a measurement has its own parts of them."""
        if not isinstance(outcome, outcomes.Observed):
            return outcome
        return replace(
            outcome,
            learning_rates=self._rates,
            start_seconds=self._trains - self._launched,
            import_seconds=self._start - self._launched,
        )

    def _timing(self, plan: jobs.MeasurePlan) -> Requests:
        build_seconds = max(0.0, time.monotonic() - self._start - self.compiler.seconds)
        found = yield from TimedTraining(
            self.stream,
            self.observed.device,
            self.world,
            self._folder,
            self.compiler,
            self._fault,
        ).measuring(plan)
        if not isinstance(found, Measurement):
            return found
        start = self._start - self._launched
        return outcomes.Measured(replace(found, start_seconds=start, build_seconds=build_seconds))

    def _fault(self) -> outcomes.Failure | None:
        """Return a setting without effect or a parameter that is not finite; None if fine."""
        interposition, observed = self.interposition, self.observed
        if not self.stream.is_fed:
            observed.batch_size = self.stream.calls.size
        overridden = interposition.overridden()
        for name, reason in interposition.failed.items():
            return outcomes.NotApplied(name, spelled(interposition.config[name]), reason)
        for name, (wanted, found) in overridden.items():
            return outcomes.NotApplied(name, spelled(wanted), spelled(found))
        if not all(bool(torch.isfinite(one).all()) for one in observed.parameters):
            return outcomes.NonFinite("a parameter of the model became NaN or infinite")
        return None

    def _first_steps(self, task: jobs.TakeFirstSteps) -> Requests:
        """Take the first steps; this begins after some, so that the parameters are known."""
        parts = (part for model in self.observed.models for part in model.modules())
        if task.draws_as_eager and any("drop" in type(one).__name__.lower() for one in parts):
            draw_as_eager_does()
        return (yield from self.losses.first_steps(task, self.observed.trained))

    def _probing(self, task: jobs.Probe) -> Requests:
        """Train on the task's samples; without a loss, until the script prints its quality.

        Of several processes, what rank 0 prints counts.
        """
        self._folder.enter_phase("short training")
        if task.seeds[0] != jobs.FIRST_SEED:
            self._become_another(task.seeds[0])
        yield from self.losses.training_on(task)
        if task.loss:
            return self.losses.probed(task, self._start)
        self._printed.mark()
        try:
            while (found := self.world.on_first(self._printed.news)) is None:
                yield 1
        except ValueError as error:
            return outcomes.UserError(str(error), "")
        return self._probed(found)

    def _become_another(self, seed: int) -> None:
        """Continue as a training with another seed, although many scripts have set one by now.

        The weights change by a rounding error, which many steps amplify to the effect of chance,
        and all random numbers differ from here on.
        """
        weights = [one for one in self.observed.parameters if one.requires_grad]
        nudge(weights, _ROUNDING, seed)
        seed_everything(seed)

    def _probed(self, found: float) -> outcomes.TrialOutcome:
        if not math.isfinite(found):
            return outcomes.NonFinite(f"the quality that it printed is {found}")
        return outcomes.Probed((found,), time.monotonic() - self._start)


def _are_equal(wanted: Sequence[float], found: Sequence[float]) -> bool:
    """Return True if learning rates agree up to rounding."""
    pairs = zip(wanted, found, strict=False)
    return len(wanted) == len(found) and all(math.isclose(*p, rel_tol=1e-6) for p in pairs)


def _listed(rates: Iterable[float]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in dict.fromkeys(rates))


class _Printed:
    """The values of the quality that a script has printed so far."""

    def __init__(self, folder: TrialFolder, pattern: str) -> None:
        self._folder = folder
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._known = (0, 0)
        self._from = (0, 0)

    def mark(self) -> None:
        """Let `news` ignore what has been printed so far."""
        self._from = self._known = self._sizes()

    def news(self) -> float | None:
        """Return the first quality printed since `mark`; None if there is none or nothing new."""
        sizes = self._sizes()
        if sizes == self._known:
            return None
        self._known = sizes
        found = self._matches(self._from)
        return found[0] if found else None

    def last(self) -> float | None:
        """Return the last quality printed at all; None if there is none."""
        self._sizes()
        found = self._matches((0, 0))
        return found[-1] if found else None

    def _matches(self, start: tuple[int, int]) -> list[float]:
        """Return what was printed from there on; raise a ValueError if it is not a number."""
        found: list[float] = []
        for path, begin in zip((self._folder.stdout, self._folder.stderr), start, strict=True):
            text = path.read_bytes()[begin:].decode(errors="replace")
            matches = self._pattern.finditer(text)
            found += [_number(m[1] if self._pattern.groups else m[0]) for m in matches]
        return found

    def _sizes(self) -> tuple[int, int]:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return self._folder.stdout.stat().st_size, self._folder.stderr.stat().st_size


def _number(text: str | None) -> float:
    """Convert a match's group to a number; raise ValueError if that fails or it is None."""
    try:
        return float(text or "")
    except ValueError:
        raise ValueError(
            f"--metric-regex captures {(text or '')[:_SHOWN]!r}, which is not a number; its first "
            "group must hold only the number, as in 'accuracy ([0-9.]+)'"
        ) from None
