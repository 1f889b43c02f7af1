"""The numerics check of a script: its first losses beside those of the untouched one."""

from dataclasses import replace

import pytest

import scripted_runner
from autotune.configuration.job import TakeFirstSteps
from autotune.configuration.script import ScriptOptions
from autotune.context.inspection import observation, observe
from autotune.process.common.trial_folder import TrialFolder
from autotune.searching.run.events import Answered
from autotune.values.outcome import FirstLosses, ObservedLoss, UserError, outcome_to_json
from scripted_runner import LOSSES, ScriptedRunner, at, events_of, unstored_in

SEEN = replace(scripted_runner.SEEN, loss=ObservedLoss("", LOSSES.losses, moves=LOSSES.moves))
SPACE = "amp_dtype: [null, bfloat16]\nnum_workers: [0, 2]\n"


class Losses(ScriptedRunner):
    """Answers with first steps that are off by a share of the untouched ones."""

    off: float = 0.0
    by_chance: float = 0.0
    of_moves: bool = False
    """Whether it is how far they move the weights that is off, in place of the losses."""

    def run(self, job, folder):
        found = super().run(job, folder)
        if isinstance(job.task, TakeFirstSteps) and isinstance(found, FirstLosses):
            assert job.config is not None
            is_changed = job.config["amp_dtype"] or job.config["optimizer_impl"]
            share = self.off if is_changed else 0.0
            share = self.by_chance if job.task.nudge else share
            what = "moves" if self.of_moves else "losses"
            return replace(found, **{what: tuple(x * (1 + share) for x in getattr(found, what))})
        return found


def faster_in_bfloat16(config, phase):
    return at(100 * (2 if config["amp_dtype"] else 1) * (1 + int(config["num_workers"] or 0)))


def faster_with_a_fused_optimizer(config, phase):
    return at(200 if config["optimizer_impl"] else 100)


def searched(folder, runner, space=SPACE, **changes):
    script = ScriptOptions(())
    end = events_of(unstored_in(folder, space, script=script, trials=4, **changes), runner)[-1]
    assert isinstance(end, Answered)
    return end


def losses(off, by_chance):
    runner = Losses(
        measure=faster_in_bfloat16, quality=lambda config, seed: 1.0 + seed / 100, observed=SEEN
    )
    runner.off, runner.by_chance = off, by_chance
    return runner


@pytest.mark.parametrize(
    ("off", "by_chance", "passes"),
    [(0.01, 0.0, True), (0.1, 0.0, False), (0.1, 0.05, True), (0.2, 0.05, False)],
)
def test_first_losses_may_differ_by_rounding_or_by_the_spread_of_untouched_runs(
    tmp_path, off, by_chance, passes
):
    best = searched(tmp_path, losses(off, by_chance)).best
    assert best.config["num_workers"] == 2
    assert (best.config["amp_dtype"] == "bfloat16") is passes
    accuracy = best.constraints.accuracy
    assert accuracy.evidence == ("gate and probe" if passes else "exact")
    if passes:
        assert accuracy.gate is not None
        assert accuracy.gate.loss_error == pytest.approx(off)


@pytest.mark.parametrize(
    ("off", "by_chance", "passes"), [(-1.0, 0.01, False), (0.05, 0.01, True), (-0.2, 0.1, True)]
)
def test_the_first_steps_have_to_move_the_weights_as_far_as_the_untouched_ones(
    tmp_path, off, by_chance, passes
):
    runner = losses(off, by_chance)
    runner.of_moves, runner.measure = True, faster_with_a_fused_optimizer
    best = searched(tmp_path, runner, space="optimizer_impl: [null, fused]\n").best
    assert (best.config["optimizer_impl"] == "fused") is passes


def test_another_number_of_parameters_is_another_training(tmp_path):
    class Fewer(Losses):
        def run(self, job, folder):
            found = super().run(job, folder)
            if isinstance(found, FirstLosses) and job.config and job.config["optimizer_impl"]:
                return replace(found, moves=found.moves[:1])
            return found

    runner = Fewer(measure=faster_with_a_fused_optimizer, quality=lambda *_: 1.0, observed=SEEN)
    best = searched(tmp_path, runner, space="optimizer_impl: [null, fused]\n").best
    assert best.config["optimizer_impl"] is None


def test_a_lower_precision_may_skip_first_steps_as_a_gradient_scaler_does(tmp_path):
    runner = losses(-0.3, 0.0)
    runner.of_moves = True
    assert searched(tmp_path, runner).best.config["amp_dtype"] == "bfloat16"


@pytest.mark.parametrize("seed", [0, 1])
def test_the_untouched_scripts_losses_are_those_of_its_observed_run(tmp_path, seed):
    """A run with another seed would begin with other losses."""
    runner = losses(0.0, 0.0)
    searched(tmp_path, runner, seed=seed)
    checks = [job for job in runner.jobs if isinstance(job.task, TakeFirstSteps)]
    run = [bool(job.task.nudge) for job in checks]
    assert run == ([True, False] if seed == 0 else [False, True, False])


def test_checks_have_the_loaders_of_the_untouched_script_and_run_once(tmp_path):
    runner = losses(0.0, 0.0)
    few = replace(SEEN.loss, first=SEEN.loss.first[:9])
    runner.observed = replace(SEEN, loss=few)
    searched(tmp_path, runner)
    checks = [job for job in runner.jobs if isinstance(job.task, TakeFirstSteps)]
    assert [job.config["num_workers"] for job in checks if job.config] == [0, 0, 0]
    assert len({job.seed for job in checks}) == 1
    assert [bool(job.task.nudge) for job in checks] == [False, True, False]


def test_losses_that_cannot_be_read_leave_the_metric_alone_to_judge(tmp_path):
    runner = losses(0.0, 0.0)
    runner.observed = replace(SEEN, loss=None)  # which is not looked for beside a metric
    runner.first_steps = lambda config: UserError("it calls no backward", "")
    script = ScriptOptions((), metric="accuracy (.*)")
    options = unstored_in(tmp_path, SPACE, script=script, trials=4)
    end = events_of(options, runner)[-1]
    accuracy = end.best.constraints.accuracy
    assert end.best.config["amp_dtype"] == "bfloat16"
    assert (accuracy.evidence, accuracy.gate) == ("probe", None)


def test_what_was_found_of_the_loss_holds_when_the_search_goes_on(tmp_path):
    """A loss that barely falls must not make another study of the same search."""
    script, path = ScriptOptions(("--epochs", "3")), tmp_path / "train.py"
    path.write_text("")
    folder = tmp_path / "script"
    folder.mkdir()
    asked = []

    def observing(doubt):
        runner = ScriptedRunner()

        def run(job, place):
            asked.append(job.task.loss_seconds)
            loss = ObservedLoss(job.task.source, LOSSES.losses, doubt=doubt, moves=LOSSES.moves)
            seen = replace(SEEN, loss=loss if job.task.loss_seconds else None)
            TrialFolder(place).outcome.write_text(outcome_to_json(seen))
            return seen

        runner.run = run
        return runner

    def doubt_of(found):
        loss = observe(observing(found), observation(path, script, 10.0), folder, 6.0).loss
        assert loss is not None
        return loss.doubt

    assert [doubt_of("no fall"), doubt_of(""), doubt_of("")] == ["no fall"] * 3
    assert asked == [6.0, 0.0, 0.0]
    path.write_text("# changed")
    assert doubt_of("") == ""
