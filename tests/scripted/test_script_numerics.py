"""The numerics check of a script: its first losses and gradients beside the untouched ones."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import scripted_runner
from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.job import Probe, TakeFirstSteps
from autotune.configuration.script import ScriptOptions
from autotune.context.inspection import observe
from autotune.context.options import Resources
from autotune.context.script_ways import Wanted
from autotune.context.search_context import survey
from autotune.process.common.trial_folder import TrialFolder
from autotune.scripting.losses import sums_of_gradients
from autotune.searching.run.events import Answered
from autotune.values.outcome import FirstLosses, FirstSums, ObservedLoss, UserError, outcome_to_json
from scripted_runner import LOSSES, ScriptedRunner, at, events_of, unstored_in
from shown_search import lines_of
from study_factories import opened

SEEN = replace(scripted_runner.SEEN, loss=ObservedLoss("", LOSSES.losses, moves=LOSSES.moves))
SPACE = "amp_dtype: [null, bfloat16]\nnum_workers: [0, 2]\n"


def faster_in_bfloat16(config, phase):
    return at(100 * (2 if config["amp_dtype"] else 1) * (1 + int(config["num_workers"] or 0)))


def faster_with_a_fused_optimizer(config, phase):
    return at(200 if config["optimizer_impl"] else 100)


def searched(folder, runner, space=SPACE, **changes):
    script = ScriptOptions(())
    end = events_of(unstored_in(folder, space, script=script, trials=4, **changes), runner)[-1]
    assert isinstance(end, Answered)
    return end


def losses(off, by_chance, what="losses", measure=faster_in_bfloat16):
    """A script whose first losses or moves are off by a share: changed, or nudged by chance."""

    def instead(job, found):
        if not isinstance(found, FirstLosses):
            return found
        is_changed = job.config["amp_dtype"] or job.config["optimizer_impl"]
        share = by_chance if job.task.nudge else off if is_changed else 0.0
        return replace(found, **{what: tuple(x * (1 + share) for x in getattr(found, what))})

    quality = lambda config, seed: 1.0 + seed / 100  # noqa: E731
    return ScriptedRunner(measure, quality, instead=instead, observed=SEEN)


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
    assert accuracy.evidence == ("numerical check and short trainings" if passes else "exact")
    if passes:
        assert accuracy.numerical_check is not None
        assert accuracy.numerical_check.loss_error == pytest.approx(off)


@pytest.mark.parametrize(
    ("off", "by_chance", "passes"), [(-1.0, 0.01, False), (0.05, 0.01, True), (-0.2, 0.1, True)]
)
def test_the_first_steps_have_to_move_the_weights_as_far_as_the_untouched_ones(
    tmp_path, off, by_chance, passes
):
    runner = losses(off, by_chance, "moves", faster_with_a_fused_optimizer)
    best = searched(tmp_path, runner, space="optimizer_impl: [null, fused]\n").best
    assert (best.config["optimizer_impl"] == "fused") is passes


def test_another_number_of_parameters_is_another_training(tmp_path):
    def instead(job, found):
        is_changed = isinstance(found, FirstLosses) and job.config["optimizer_impl"]
        return replace(found, moves=found.moves[:1]) if is_changed else found

    runner = replace(losses(0.0, 0.0, measure=faster_with_a_fused_optimizer), instead=instead)
    best = searched(tmp_path, runner, space="optimizer_impl: [null, fused]\n").best
    assert best.config["optimizer_impl"] is None


def test_a_lower_precision_may_skip_first_steps_as_a_gradient_scaler_does(tmp_path):
    assert searched(tmp_path, losses(-0.3, 0.0, "moves")).best.config["amp_dtype"] == "bfloat16"


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
    assert (accuracy.evidence, accuracy.numerical_check) == ("short trainings", None)


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
        wanted, runner = Wanted(loss_seconds=6.0), observing(found)
        loss = observe(script, path, Resources(), runner, folder, wanted).loss
        assert loss is not None
        return loss.doubt

    assert [doubt_of("no fall"), doubt_of(""), doubt_of("")] == ["no fall"] * 3
    assert asked == [6.0, 0.0, 0.0]
    path.write_text("# changed")
    assert doubt_of("") == ""


OWN = replace(LOSSES, sums=FirstSums((1.0, -2.0, 2.0), (2.0, -2.0, 1.0), (2.0, 1.0, 2.0)))
FUSED = "optimizer_impl: [null, fused]\n"
BOTH = f"{FUSED}compile_mode: [null, default]\n"
NO_FALL = "its loss did not drop clearly"


def off(own, share):
    """Sums whose distance from the own ones is this share of their size, which is 3."""
    return (own[0] + 3 * share, *own[1:])


def runner(first=0.0, settled=0.0, doubt="", is_known=True, update=0.0):
    """A script whose changed settings are faster, and have gradients that are off by a share."""

    def steps(config):
        sums = OWN.sums
        if config["optimizer_impl"]:
            apart = off(sums.settled_gradients, 0.5)  # by Adam's first steps
            sums = FirstSums(off(sums.gradients, first), off(sums.update, update), apart)
        if config["compile_mode"]:
            sums = replace(sums, settled_gradients=off(sums.settled_gradients, settled))
        return replace(OWN, sums=sums)

    def timed(config, phase):
        factor = (2 if config["optimizer_impl"] else 1) * (2 if config["compile_mode"] else 1)
        return at(100 * factor * (1.5 if config["amp_dtype"] else 1))

    sums = OWN.sums if is_known else FirstSums()
    loss = ObservedLoss("", OWN.losses, 1.0, doubt, OWN.moves, sums)
    seen = replace(SEEN, loss=loss)
    found = ScriptedRunner(measure=timed, quality=lambda *_: 1.0, observed=seen)
    found.first_steps = steps
    return found


def searched_gradients(folder, found, space):
    options = unstored_in(folder, space, script=ScriptOptions(()), trials=6)
    end = events_of(options, found)[-1]
    return end.best


def probed(found):
    """Settings of the trainings whose quality was asked for."""
    configs = (job.config or {} for job in found.jobs if isinstance(job.task, Probe))
    return [
        f"{config['optimizer_impl']}, {config['compile_mode']}"
        for config in configs
        if config["optimizer_impl"] or config["compile_mode"]
    ]


@pytest.mark.parametrize(
    ("first", "update", "is_known", "evidence"),
    [
        (0.02, 0.02, True, "numerical check"),
        (0.1, 0.0, True, "numerical check and short trainings"),
        (0.0, 0.1, True, "numerical check and short trainings"),
        (0.0, 0.0, False, "numerical check and short trainings"),
    ],
)
def test_a_fused_optimizer_whose_first_update_agrees_needs_no_seeds(
    tmp_path, first, update, is_known, evidence
):
    """It holds from the first step on, so that the third one tells nothing more."""
    found = runner(first, update=update, is_known=is_known)
    if not is_known:
        found.first_steps = lambda config: LOSSES
    best = searched_gradients(tmp_path, found, FUSED)
    assert best.config["optimizer_impl"] == "fused"
    assert best.constraints.accuracy.evidence == evidence
    assert bool(probed(found)) is (evidence != "numerical check")


@pytest.mark.parametrize(
    ("settled", "evidence"),
    [(0.02, "numerical check"), (0.1, "numerical check and short trainings")],
)
def test_compiling_is_compared_when_it_is_in_force(tmp_path, settled, evidence):
    best = searched_gradients(tmp_path, runner(settled=settled), "compile_mode: [null, default]\n")
    assert best.config["compile_mode"] == "default"
    assert best.constraints.accuracy.evidence == evidence


def test_what_is_in_force_at_once_is_checked_without_the_rest(tmp_path):
    """The weights of both then are the same when the rest comes into force."""
    found = runner(settled=0.02)
    best = searched_gradients(tmp_path, found, BOTH)
    assert (best.config["optimizer_impl"], best.config["compile_mode"]) == ("fused", "default")
    assert (best.constraints.accuracy.evidence, probed(found)) == ("numerical check", [])
    tasks = (
        (job.task, job.config)
        for job in found.jobs
        if isinstance(job.task, TakeFirstSteps) and not job.task.nudge
    )
    checked = [
        (config["optimizer_impl"], config["compile_mode"], task.draws_as_eager)
        for task, config in tasks
        if config is not None and isinstance(task, TakeFirstSteps)
    ]
    assert sorted(checked, key=str) == [
        ("fused", "default", True),
        ("fused", None, False),
        (None, "default", True),
    ]


def test_what_only_rounds_is_searched_where_no_quality_judges(tmp_path):
    space = f"{BOTH}amp_dtype: [null, bfloat16]\n"
    best = searched_gradients(tmp_path, runner(0.02, 0.02, NO_FALL), space)
    assert (best.config["optimizer_impl"], best.config["compile_mode"]) == ("fused", "default")
    assert best.config["amp_dtype"] is None
    accuracy = best.constraints.accuracy
    assert (accuracy.evidence, accuracy.metric) == ("numerical check", "unchanged")
    assert str(accuracy.compared_by).startswith("gradients of the first steps")
    assert accuracy.numerical_check.gradient_error == pytest.approx(0.02)
    assert str(accuracy.not_compared).startswith(
        "trying only settings that preserve results or gradients;"
    )
    assert best.judged_numerics, "autotune run applies them"
    assert accuracy.not_measured_text.startswith(
        "not measured, but compared: gradients of the first"
    )


@pytest.mark.parametrize(("settled", "is_known"), [(0.2, True), (0.0, False)])
def test_other_gradients_are_refused_where_no_quality_judges(tmp_path, settled, is_known):
    best = searched_gradients(tmp_path, runner(0.0, settled, NO_FALL, is_known), BOTH)
    assert best.config["compile_mode"] is None
    assert best.config["optimizer_impl"] == ("fused" if is_known else None)


def test_gradients_that_tell_nothing_are_not_said_to_differ(tmp_path):
    """The steps of the untouched script move nothing."""
    found = runner(doubt=NO_FALL)
    unmoved = replace(OWN, sums=replace(OWN.sums, update=()))
    loss = ObservedLoss("", OWN.losses, 1.0, NO_FALL, OWN.moves, unmoved.sums)
    found.observed = replace(SEEN, loss=loss)
    options = unstored_in(tmp_path, FUSED, script=ScriptOptions(()), trials=2)
    said = " ".join(lines_of(events_of(options, found)))
    assert "gradients of the first steps cannot be compared" in said
    assert "differ from the unchanged script's" not in said


def gradients(*entries):
    """Parameters with these gradients."""
    parameters = [torch.zeros_like(one, requires_grad=True) for one in entries]
    for parameter, entry in zip(parameters, entries, strict=True):
        parameter.grad = entry
    return parameters


def distance(found, own):
    differences = torch.tensor(found) - torch.tensor(own)
    return float(differences.norm() / torch.tensor(own).norm())


@pytest.mark.parametrize("share", [0.001, 0.05])
def test_sums_tell_how_far_gradients_are_apart(share):
    torch.manual_seed(0)
    own = [torch.randn(64, 3, 3, 3), torch.randn(300, 200), torch.randn(7)]
    other = [one + share * torch.randn_like(one) for one in own]
    apart = distance(sums_of_gradients(gradients(*other)), sums_of_gradients(gradients(*own)))
    assert share / 1.6 < apart < share * 1.6
    last = [one.contiguous(memory_format=torch.channels_last) for one in own[:1]]
    again = sums_of_gradients(gradients(*last, *own[1:]))
    assert distance(again, sums_of_gradients(gradients(*own))) < 1e-5


def test_gradients_of_two_parameters_do_not_hide_each_other():
    change = torch.randn(50)
    ones = torch.ones(50)
    own = sums_of_gradients(gradients(ones, ones, ones))
    apart = sums_of_gradients(gradients(ones + change, ones - change, ones))
    assert distance(apart, own) > 0.5


def test_each_place_of_a_kernel_and_each_column_counts():
    for shape in ((64, 64, 3, 3), (1024, 1024)):
        own = torch.ones(shape)
        other = own.clone()
        other[..., 1] = -1.0
        apart = sums_of_gradients(gradients(other)), sums_of_gradients(gradients(own))
        share = 2 * shape[-1] ** -0.5
        assert distance(*apart) == pytest.approx(share, rel=0.5)


def test_defaults_of_the_script_and_autocast_do_not_matter():
    own = gradients(torch.randn(50, 40))
    before = sums_of_gradients(own)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert sums_of_gradients(own) == before
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@pytest.mark.parametrize(
    "entry", [torch.eye(4).to_sparse(), torch.tensor([1.0, torch.inf]), torch.tensor([torch.nan])]
)
def test_sparse_infinite_and_missing_gradients_tell_nothing(entry):
    assert sums_of_gradients(gradients(torch.ones(3), entry)) == ()
    assert sums_of_gradients([torch.ones(3, requires_grad=True)]) == ()


def test_gradients_behind_a_layer_of_zeros_tell_nothing():
    behind = [torch.zeros(4, 4), torch.zeros(4)]
    assert sums_of_gradients(gradients(torch.ones(3), *behind)) == ()
    assert sums_of_gradients(gradients(torch.ones(3), *behind[1:])) != ()


@pytest.mark.parametrize("seed", [0, 1])
def test_seeds_are_expected_where_no_check_can_spare_them(tmp_path, seed):
    """So that a layout is proposed as early as what leaves the arithmetic alone."""
    space = f"{BOTH}amp_dtype: [null, bfloat16]\n"
    found = runner(settled=0.2)
    options = unstored_in(tmp_path, space, script=ScriptOptions(()), seed=seed)
    context = survey(options, found)
    study = opened(context.options.study.storage, context.space)
    study.notes.probe_samples = 80
    prober = AccuracyProber(context, found, study)
    own = context.baseline
    fused, compiled = own.replace(optimizer_impl="fused"), own.replace(compile_mode="default")
    both = fused.replace(compile_mode="default")
    asked = (own, fused, compiled, both, fused.replace(amp_dtype="bfloat16"))
    assert prober.unknown(asked) == [False, False, False, False, True]
    prober.verdict(compiled, most_seeds=1)
    assert prober.needs_probe(compiled), "its gradients are known to differ"


def test_a_check_is_not_put_off_where_seeds_take_long(tmp_path, monkeypatch):
    """A check of ten steps decides alone, so that no time is set aside for seeds."""
    now = [time.monotonic()]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("autotune.process.stop.time", clock)
    found = runner()
    measure, quality = found.measure, found.quality

    def timed(config, phase):
        now[0] += 10.0 if phase == "trial" else 0.0
        return measure(config, phase)

    def judged(config, seed):
        now[0] += 100.0
        return quality(config, seed)

    found.measure, found.quality, found.seed_seconds = timed, judged, 100.0
    script, space = ScriptOptions(()), f"{FUSED}num_workers: [0, 1, 2, 4]\n"
    options = unstored_in(tmp_path, space, script=script, trials=8, time_budget_seconds=900.0)
    end = events_of(options, found)[-1]
    assert end.best.config["optimizer_impl"] == "fused"
    assert probed(found) == []
    asked = [
        (job.task.kind, bool(job.config and job.config["optimizer_impl"])) for job in found.jobs
    ]
    trial, check = asked.index(("measure", True)), asked.index(("take_first_steps", True))
    assert not any(kind == "measure" for kind, _ in asked[trial + 1 : check])
