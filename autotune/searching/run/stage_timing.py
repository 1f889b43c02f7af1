"""Time the stages of the user's training, each on its own, and note them with the study."""

from __future__ import annotations

from statistics import median

from autotune.configuration.job import Diagnose, MeasurePlan
from autotune.context.search_context import SearchContext
from autotune.process.runner import Runner
from autotune.searching.run.diagnosis import Diagnosis, most_speedup
from autotune.study.study import TuningStudy
from autotune.values.outcome import Diagnosed, Failure, Rejected, as_failure, describe

_SECONDS, _FEWEST_SECONDS, _SHARE = 90.0, 15.0, 1 / 10
# The diagnosis needs orders of magnitude only.
_PLAN = MeasurePlan(block_seconds=0.1, looks=(3,))
_NOT_TOLD = "the stages of this script cannot be told apart"


def noted_diagnosis(context: SearchContext, study: TuningStudy) -> Diagnosis | None:
    """Return the diagnosis that the study holds; None if it holds none."""
    stages = study.notes.diagnosis
    return None if stages is None else diagnosis_of(context, stages, _reached(study))


def diagnose(context: SearchContext, runner: Runner, study: TuningStudy) -> Diagnosis | str:
    """Time the stages and note them; return the reason if that fails, which is no error."""
    outcome = time_stages(context, runner)
    if not isinstance(outcome, Diagnosed):
        return describe(outcome)
    study.notes.diagnosis = outcome
    return diagnosis_of(context, outcome, _reached(study))


def diagnosis_of(context: SearchContext, stages: Diagnosed, reached: float | None) -> Diagnosis:
    """Return the diagnosis of timed stages.

    Args:
        context: the search.
        stages: seconds of each stage of the baseline.
        reached: samples per second of training as a whole; None if not known.
    """
    sizes = [int(size or 1) for size in context.space.domains["batch_size"]]
    of = (context.machine, context.baseline, max(sizes), reached, context.rate_unit)
    return Diagnosis(stages, *of, most_speedup(context.space, context.machine))


def _reached(study: TuningStudy) -> float | None:
    runs = study.notes.baseline_runs
    return median(run.samples_per_second for run in runs) if runs else None


def time_stages(context: SearchContext, runner: Runner) -> Diagnosed | Failure:
    """Time each stage of the baseline on its own, in a child process; a script's are observed."""
    if context.observed is not None:
        if context.processes > 1:
            return Rejected("the stages of a script's processes are not timed apart")
        return context.observed.stages or Rejected(_NOT_TOLD)
    on_host = context.options.resources.on_host or context.processes
    cores = max(1, context.machine.host.usable_cores // on_host)
    workers = tuple(dict.fromkeys((0, min(cores, 2), max(1, cores // 2))))
    if context.facts.workers_obstacle:
        workers = (0,)  # more would load other samples
    seconds = min(_longest_seconds(context), context.options.budget.trial_timeout_seconds)
    halves = not context.machine.has_accelerator and context.baseline["amp_dtype"] is None
    asks = halves and "bfloat16" in context.space.domains["amp_dtype"]
    job = context.job(Diagnose(_PLAN, workers, asks), context.baseline, seconds)
    outcome = runner.run(job, context.options.study.folder / "trials" / "diagnosis")
    return outcome if isinstance(outcome, Diagnosed) else as_failure(outcome)


def _longest_seconds(context: SearchContext) -> float:
    """Return the deadline of the diagnosis in seconds: 90, or less with a short time budget."""
    if context.time_budget_seconds is None:
        return _SECONDS
    building = 2 * context.start_seconds
    return min(_SECONDS, max(_FEWEST_SECONDS, _SHARE * context.time_budget_seconds) + building)
