"""Comparing two configurations of a model.py or a script, with timings known beforehand."""

import json
import math
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
from scipy import stats

import scripted_runner
from autotune.commands import execute
from autotune.comparison.compare import ComparisonOptions, Side, compare, side_of, still_holds
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.job import Inspect, Job
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.values.errors import AutotuneError, UsageError, WorkloadError
from autotune.values.outcome import (
    Crashed,
    Inspected,
    Lost,
    Rejected,
    ScriptFlag,
    Surroundings,
    TrialOutcome,
    UserError,
)
from command_line import command
from factories import best_config, cpu_machine, edited, written
from scripted_runner import FACTS, ScriptedRunner, at
from scripted_runner import SEEN_SETTINGS as OWN

SMALL, LARGE = (TrainingConfig.of({"batch_size": size}) for size in (8, 64))


@dataclass
class Timing:
    """A runner that times by a function of the batch size, and remembers jobs and folders."""

    outcome: Callable[[int], TrialOutcome] = lambda batch: at(100 if batch == 8 else 150)
    inspected: TrialOutcome = field(default_factory=lambda: Inspected(cpu_machine(), FACTS))
    jobs: list[Job] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def run(self, job, folder):
        if isinstance(job.task, Inspect):
            return self.inspected
        assert job.config is not None
        self.jobs.append(job)
        self.names.append(folder.name)
        return self.outcome(int(job.config["batch_size"] or 0))


def options(b=SMALL, rounds=6, fresh_data=False):
    return ComparisonOptions(
        WorkloadOptions(Path("model.py"), fresh_data=fresh_data),
        *(Side("large.yaml", LARGE), Side("small.yaml", b)),
        rounds,
    )


def compared(runner, asked, folder):
    return list(compare(asked, runner, folder))[-1]


def test_without_b_the_workloads_own_settings_are_the_other_side(tmp_path):
    runner = Timing()
    compared(runner, options(b=None), tmp_path)
    own = TrainingConfig.of(FACTS.baseline).resolved(cpu_machine())
    assert [job.config for job in runner.jobs].count(own.as_dict()) == 6


def test_both_take_turns_for_all_the_rounds(tmp_path):
    runner = Timing()
    compared(runner, options(rounds=8), tmp_path)
    assert [job.host for job in runner.jobs] == [f"round {n}" for n in range(8) for _ in range(2)]
    firsts = [name.partition("-")[2] for name in runner.names[::2]]
    assert sorted(firsts) == ["a"] * 4 + ["b"] * 4
    assert len(runner.jobs) == 16, "nothing is decided before the last round"


def test_each_process_builds_its_dataset_where_that_is_asked_for(tmp_path):
    compared(runner := Timing(), options(), tmp_path)
    assert not any(job.fresh_data for job in runner.jobs)
    compared(runner := Timing(), options(fresh_data=True), tmp_path)
    assert all(job.fresh_data for job in runner.jobs)


def test_the_same_settings_on_both_sides_are_not_mixed_up(tmp_path):
    comparison = compared(Timing(), options(b=LARGE), tmp_path)
    assert comparison.interval == pytest.approx((1, 1))
    assert not comparison.is_faster


@pytest.mark.parametrize(("batch", "label"), [(64, "large.yaml"), (8, "small.yaml")])
def test_the_side_that_fails_is_named_with_its_log(batch, label, tmp_path):
    failing = Timing(lambda b: Crashed("killed by SIGSEGV") if b == batch else at(100))
    with pytest.raises(WorkloadError, match=rf"{label}: killed by SIGSEGV\nWhole log: .*stderr"):
        compared(failing, options(), tmp_path)


def test_a_process_that_is_lost_twice_is_no_fault_of_the_workload(tmp_path):
    with pytest.raises(AutotuneError, match="disk full") as raised:
        compared(Timing(lambda _: Lost("disk full")), options(), tmp_path)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("inspected", "error"),
    [
        (Rejected("--device cuda:9 is not there"), UsageError),
        (UserError("ImportError: no", "model.py:1"), WorkloadError),
    ],
)
def test_a_workload_that_cannot_be_inspected_is_not_timed(inspected, error, tmp_path):
    runner = Timing(inspected=inspected)
    with pytest.raises(error):
        compared(runner, options(), tmp_path)
    assert runner.jobs == []


def test_a_side_is_the_configuration_of_a_file_or_the_workloads_own(tmp_path):
    write_best(best_config(LARGE, SMALL), tmp_path / "best.yaml")
    assert side_of(tmp_path / "best.yaml") == Side(str(tmp_path / "best.yaml"), LARGE, (1.45, 1.55))
    assert side_of(None).config is None
    write_best(best_config(SMALL, SMALL), tmp_path / "best.yaml")
    assert side_of(tmp_path / "best.yaml").confirmed is None, "kept settings promise no speed-up"


def rounds_of(*ratios):
    """A comparison of which only the ratios matter."""
    return PairedComparison(costs=tuple((ratio, 1.0) for ratio in ratios))


def rounds_between(low, high):
    """A comparison of twenty rounds with about this interval."""
    away = math.log(high / low) / 2 * math.sqrt(19) / float(stats.t.ppf(0.975, 19))
    middle = math.sqrt(low * high)
    return rounds_of(*[middle * (1 + away), middle * (1 - away)] * 10)


@pytest.mark.parametrize(
    ("low", "high", "confirmed", "holds"),
    [
        (1.40, 1.80, (1.33, 2.00), True),  # as it was
        (1.30, 1.34, (1.33, 2.00), True),  # less, but it may be the same
        (2.10, 2.30, (1.33, 2.00), True),  # more
        (1.10, 1.30, (1.33, 2.00), False),  # faster still, but not as it was
        (0.80, 1.40, (1.33, 2.00), False),  # nothing is left that could be shown
        (0.99, 1.90, (1.33, 2.00), True),  # a noisy day
        (0.99, 1.06, (1.01, 1.07), True),  # too small to be shown again in few rounds
        (0.97, 1.03, (1.01, 1.07), False),
        (0.80, 0.95, (1.01, 1.07), False),  # slower
        (0.97, 1.03, None, True),  # no speed-up was stated
        (0.90, 1.01, None, True),
        (0.80, 0.95, None, False),  # but that it is not slower
    ],
)
def test_a_confirmed_speed_up_holds_until_the_rounds_say_otherwise(low, high, confirmed, holds):
    comparison = rounds_between(low, high)
    assert comparison.interval == pytest.approx((low, high), rel=0.02)
    assert still_holds(comparison, confirmed) is holds


def noisy(speedup, random):
    """Nine rounds on a machine whose timings differ by some 8 % from one to the next."""
    return rounds_of(*(speedup * math.exp(random.gauss(0, 0.08)) for _ in range(9)))


def alarms(then, now):
    """Return how often a job fails where what was confirmed as `then` times as fast is `now`."""
    random, failed, confirmed = Random(0), 0, 0
    while confirmed < 1000:
        comparison = noisy(then, random)
        if comparison.is_faster:  # else there would be no answer
            confirmed += 1
            failed += not still_holds(noisy(now, random), comparison.interval)
    return failed / confirmed


def test_noise_seldom_fails_a_job_and_a_loss_mostly_does():
    assert alarms(1.5, 1.5) < 0.01
    assert alarms(1.2, 1.2) < 0.01
    assert alarms(1.05, 1.05) < 0.3, "what was barely confirmed was partly luck"
    assert alarms(1.5, 1.0) > 0.99
    assert alarms(1.5, 1.2) > 0.9
    assert alarms(1.2, 1.0) > 0.9


NOT_FASTER, USAGE, WORKLOAD = 8, 2, 4
SEEN = replace(scripted_runner.SEEN, fixed={"channels_last": "the script sets it itself"})


class Sides(ScriptedRunner):
    """A runner that times the called script by its settings, in the place of real processes."""

    def __init__(self, observed=SEEN):
        def timed(config, _):
            return at(150 if config["num_workers"] else 100)

        super().__init__(timed, observed=observed)
        self.inspected = Inspected(cpu_machine(), None)

    @property
    def timings(self):
        """The jobs of timings, which follow those that look at machine and script."""
        return [job for job in self.jobs if job.config is not None]


@pytest.fixture
def folder(tmp_path):
    """A folder with a script that must not run."""
    written(tmp_path, "raise SystemExit('ran')\n", "train.py")
    return tmp_path


def answer(folder, name="best.yaml", **changes):
    own = TrainingConfig.of(OWN)
    write_best(best_config(own.replace(**changes), own), folder / name)
    return folder / name


def compared_by_command(monkeypatch, folder, runner, *words):
    monkeypatch.setattr(execute, "SubprocessRunner", runner)
    with chdir(folder):
        return command("compare", "train.py", *words)


def test_the_configuration_takes_turns_with_the_untouched_script(folder, monkeypatch):
    answer(folder, num_workers=2)
    words = ("best.yaml", "--require-faster", "--json", "--", "--name", "a b")
    done = compared_by_command(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["ratio"] == pytest.approx(1.5)
    assert "best.yaml is 1.50x as fast as your settings" in done.err
    calls = [job.script for job in runner.timings]
    assert len(calls) == 18
    assert {call.arguments for call in calls if call} == {("--name", "a b")}
    asked = {
        job.config["num_workers"]: set(job.script.asked)
        for job in runner.timings
        if job.config and job.script
    }
    assert asked[0] == set(), "nothing is changed in the untouched script"
    assert {"num_workers", "num_threads"} <= asked[2]
    assert "channels_last" not in asked[2]


@pytest.mark.parametrize(("workers", "threads", "code"), [(4, 1, 0), (0, 1, NOT_FASTER), (0, 2, 0)])
def test_settings_that_were_edited_have_no_confirmed_speed_up_and_must_be_faster(
    folder, monkeypatch, workers, threads, code
):
    """Without workers and with two threads it has the user's own settings again."""
    path = answer(folder, num_workers=2)
    changes = {"num_workers": workers, "num_threads": threads}
    write_best(edited(read_best(path), **changes, prefetch_factor=2 if workers else None), path)
    done = compared_by_command(monkeypatch, folder, Sides(), "best.yaml", "--require-faster")
    assert done.code == code, done.err
    assert f"num_workers: 2 was measured, {workers} is in the file" in done.err
    assert "previously confirmed" not in done.err


def test_two_files_are_compared_with_each_other(folder, monkeypatch):
    answer(folder, "a.yaml", num_workers=2)
    answer(folder, "b.yaml", num_threads=1)
    words = ("a.yaml", "b.yaml", "--require-faster", "--")
    done = compared_by_command(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    assert "a.yaml is 1.50x as fast as b.yaml" in done.out
    assert all(job.script and job.script.asked for job in runner.timings)


def test_a_mapped_setting_reaches_the_script_by_its_flag(folder, monkeypatch):
    answer(folder, num_workers=2, batch_size=64, amp_dtype="bfloat16")
    words = ("best.yaml", "--temp-workdir", "--map", "batch_size=--bs", "--", "--bs", "16")
    done = compared_by_command(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    calls = {job.script.arguments: job.script for job in runner.timings if job.script}
    assert set(calls) == {("--bs", "16"), ("--bs", "64")}
    assert {call.workdir for call in calls.values()} == {"temporary"}
    assert calls["--bs", "64"].by_flag == ("batch_size",)
    assert "amp_dtype" in calls["--bs", "64"].asked


def test_it_says_first_what_the_script_was_seen_to_write(folder, monkeypatch):
    answer(folder, num_workers=2)
    around = Surroundings(
        folders=(str(folder / "runs"), "/srv/out"),
        overwritten=(str(folder / "last.pt"),),
        deleted=(str(folder / "old"),),
        trackers=("wandb",),
    )
    runner = Sides(replace(SEEN, surroundings=around))
    done = compared_by_command(monkeypatch, folder, runner, "best.yaml", "--", "--name", "a b")
    assert done.code == 0, done.err
    said = done.err[done.err.index("command: ") :].splitlines()
    assert said[:7] == [
        "command: python train.py --name 'a b'",
        "  its first steps write to: runs, /srv/out (later checkpoints are not known)",
        "  each run overwrites: last.pt",
        "  each run deletes: old",
        "  autotune backs up files that the script changes or deletes (not large in-place edits)",
        "  use --temp-workdir to run it in temporary directories",
        "  wandb is switched off, even if the script sets a mode",
    ]
    assert "round" in said[7]


BS = ScriptFlag(("-b", "--batch-size"), 16)


def test_flags_that_the_scripts_parser_does_not_know_are_refused_before_a_timing(
    folder, monkeypatch
):
    own = TrainingConfig.of(OWN)
    asks = own.replace(batch_size=64, **{"flags.--epoks": 2})
    write_best(best_config(asks, own), folder / "best.yaml")
    runner = Sides(
        replace(SEEN, surroundings=Surroundings((BS, ScriptFlag(("--epochs",), 1)), ("--",)))
    )
    done = compared_by_command(
        monkeypatch, folder, runner, "best.yaml", "--map", "batch_size=--batchsize"
    )
    assert done.code == USAGE
    assert (
        "--map batch_size=--batchsize: the script has no --batchsize. Did you mean '--batch-size'?"
        "\nbest.yaml: the script has no --epoks. Did you mean '--epochs'?"
    ) in done.err
    assert not runner.timings


@pytest.mark.parametrize("words", [(), ("--no-map",)])
def test_a_flag_of_which_there_is_no_doubt_sets_the_batch_size(folder, monkeypatch, words):
    answer(folder, batch_size=64)
    runner = Sides(replace(SEEN, surroundings=Surroundings((BS,), ("--",))))
    done = compared_by_command(monkeypatch, folder, runner, "best.yaml", "--rounds", "6", *words)
    if words:
        assert done.code == USAGE
        assert "it needs --map batch_size=--FLAG." in done.err
        return
    assert done.code == 0, done.err
    assert "setting batch_size through the script's --batch-size" in done.err
    calls = {job.script.arguments for job in runner.timings if job.script}
    assert calls == {(), ("--batch-size", "64")}


def test_settings_that_cannot_reach_the_script_are_all_named(folder, monkeypatch):
    answer(folder, batch_size=64, amp_dtype="float16", channels_last=True)
    done = compared_by_command(monkeypatch, folder, runner := Sides(), "best.yaml")
    assert done.code == USAGE
    assert "best.yaml: batch_size=64 cannot be applied to train.py: " in done.err
    assert "it needs --map batch_size=--FLAG." in done.err
    assert "best.yaml: amp_dtype=float16 cannot be applied" in done.err
    assert "channels_last=true cannot be applied to train.py: the script sets it" in done.err
    assert not runner.timings


def test_a_script_that_fails_ends_the_comparison_with_its_log(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    answer(folder, num_workers=2)
    failing = Sides(observed=UserError("ValueError: no", "train.py:3"))
    done = compared_by_command(monkeypatch, folder, failing, "best.yaml")
    assert done.code == WORKLOAD
    assert "train.py:3: ValueError: no" in done.err
    assert "stderr.log" in done.err
