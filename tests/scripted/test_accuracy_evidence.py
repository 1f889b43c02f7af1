"""Differences from the baseline decide the evidence: nothing, a gate, a probe, or both."""

from dataclasses import replace

import pytest
import yaml

from autotune.accuracy.numerics_verdict import errors
from autotune.configuration.job import Gate
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Inspected, NonFinite, OutOfMemory
from factories import cpu_machine
from scripted_runner import (
    BATCHES,
    FACTS,
    ScriptedRunner,
    agreeing,
    at,
    changed,
    events_of,
    trials_of,
    unstored_in,
)

EXACT = "num_workers: [0, 2]\n"
FUSED = "optimizer_impl: [null, fused]\n"
AMP = "amp_dtype: [null, bfloat16]\n"
THREE_AND_THE_BASELINES = ["accuracy"] * (3 + 2)
"""Seeds of a configuration, and those of the baseline that were not needed before."""
TWO_BATCHES = "batch_size: [8, 64]\n"


def changed_is_faster(config, phase):
    """Whatever differs from the baseline is twice as fast."""
    baseline = TrainingConfig.of({"batch_size": 8, "num_threads": 2})
    return at(100 * 2 ** len(config.differences(baseline)))


def searched(folder, space, **script):
    """The runner and the events of a search through a small space."""
    runner = ScriptedRunner(changed_is_faster, **script)
    events = events_of(unstored_in(folder, space=space, trials=4), runner)
    return runner, events


def asked_after_the_baseline(runner):
    phases = [asked.phase for asked in runner.asked if asked.phase in ("gate", "accuracy")]
    return phases[1:]


@pytest.mark.parametrize(
    ("space", "evidence", "asked"),
    [
        (EXACT, "exact", []),
        (FUSED, "numerical check", ["gate"]),
        (AMP, "numerical check and short trainings", ["gate", *THREE_AND_THE_BASELINES]),
        (TWO_BATCHES, "short trainings", THREE_AND_THE_BASELINES),
    ],
    ids=lambda value: str(value).strip(),
)
def test_the_kind_of_the_knob_decides_what_is_asked(space, evidence, asked, tmp_path):
    runner, events = searched(tmp_path, space)
    best = events[-1].best
    assert not best.keeps_baseline
    assert asked_after_the_baseline(runner) == asked
    assert best.constraints.accuracy.evidence == evidence
    assert (best.constraints.accuracy.numerical_check is not None) == (
        "numerical check" in evidence
    )
    assert best.constraints.accuracy.needs_full_run == (space == TWO_BATCHES)


def test_every_error_of_the_numerics_check_is_in_the_answer(tmp_path):
    found = agreeing(update_error=1e-9, buffer_error=0.0012, path_error=0.00012345)
    searched(tmp_path, FUSED, gate=lambda config: found)
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())["constraints"]["accuracy"]
    decides = {one.criterion for one in errors(found, lower_precision=False)}
    names = {"gradients": "gradient_error", "buffers": "buffer_error"}
    assert set(written["numerical_check"]) == {names.get(one, f"{one}_error") for one in decides}
    assert written["numerical_check"]["update_error"] == 1e-9
    assert written["numerical_check"]["path_error"] == 0.000123


def test_a_probe_leaves_out_what_the_gate_is_enough_for(tmp_path):
    runner, _ = searched(tmp_path, TWO_BATCHES + FUSED)
    probed = [job.config for job in runner.jobs if job.task.kind == "probe"]
    found = {(config["batch_size"], config["optimizer_impl"]) for config in probed}
    assert found == {(8, None), (64, None)}


def test_a_failed_gate_is_infeasible_with_the_reason_and_costs_no_probe(tmp_path):
    turned = agreeing(gradient_error=0.31, batch_spread=0.1)
    runner, events = searched(tmp_path, AMP, gate=lambda config: turned)
    (trial,) = trials_of(events)[1:]
    assert trial.verdict.reason == "gradients differ from float64 by 31 %"
    assert trial.verdict.margins["accuracy"] == pytest.approx(0.31)
    assert trial.verdict.value, "the speed is kept"
    assert asked_after_the_baseline(runner) == ["gate"]
    assert events[-1].best.keeps_baseline


def test_gradients_that_are_not_finite_are_infeasible(tmp_path):
    _, events = searched(tmp_path, AMP, gate=lambda config: NonFinite("a gradient is not finite"))
    (trial,) = trials_of(events)[1:]
    assert trial.verdict.reason == "a gradient is not finite"
    assert trial.verdict.margins["accuracy"] == 1


def test_a_gate_is_run_once_for_each_combination_of_numerics(tmp_path, url):
    space = FUSED + "num_workers: [0, 1, 2]\n" + TWO_BATCHES
    options = unstored_in(tmp_path, space=space, trials=12, storage=url)
    runner = ScriptedRunner(changed_is_faster)
    events_of(changed(options, trials=4), runner)
    again = ScriptedRunner(changed_is_faster)
    events_of(options, again)
    assert len(runner.batches("gate")) + len(again.batches("gate")) == 1


def gates_of(folder, gate=None, facts=FACTS, space=AMP):
    """The gate jobs of a search, each with the settings that it tests."""

    def instead(job, outcome):
        return gate(job.task) if gate and isinstance(job.task, Gate) else outcome

    inspected = Inspected(cpu_machine(), facts)
    runner, _ = searched(folder, space, inspected=inspected, instead=instead)
    return [(job.config, job.task) for job in runner.jobs if isinstance(job.task, Gate)]


def test_the_gate_compares_with_plain_float32_at_the_baselines_batch_size(tmp_path):
    ((tested, task), *_) = gates_of(tmp_path, space=AMP + BATCHES)
    assert tested["amp_dtype"] == "bfloat16"
    assert task.reference["amp_dtype"] is None
    assert tested["batch_size"] == task.reference["batch_size"] == 8
    assert {n for n, v in tested.items() if v != task.reference[n]} == {"amp_dtype"}


def test_a_baseline_in_bfloat16_is_its_own_reference(tmp_path):
    facts = replace(FACTS, baseline={"batch_size": 8, "amp_dtype": "bfloat16"})
    ((tested, task),) = gates_of(tmp_path, facts=facts, space=FUSED)
    assert tested["amp_dtype"] == task.reference["amp_dtype"] == "bfloat16"


def test_where_float64_does_not_fit_the_gate_goes_without(tmp_path):
    def full(task):
        return OutOfMemory("host", "full") if task.in_double else agreeing()

    gates = gates_of(tmp_path, gate=full, space=FUSED)
    assert [task.in_double for _, task in gates] == [True, False]


def factors_of(folder, rule):
    """Batch size and task to the learning rate's factor, and the answer."""
    options = unstored_in(folder, space=TWO_BATCHES + AMP, trials=4, lr_scaling=rule)
    best = events_of(options, runner := ScriptedRunner(changed_is_faster))[-1].best
    jobs = [job for job in runner.jobs if job.config is not None]
    return {(job.task.kind, job.config["batch_size"]): job.lr_factor for job in jobs}, best


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 8.0), ("sqrt", 8**0.5)])
def test_trials_probes_and_the_answer_use_one_learning_rate(rule, factor, tmp_path):
    factors, best = factors_of(tmp_path, rule)
    assert factors["measure", 64] == factors["probe", 64] == pytest.approx(factor)
    assert factors["measure", 8] == factors["probe", 8] == factors["gate", 8] == 1
    assert best.config["batch_size"] == 64
    assert (best.lr_scaling.rule, best.lr_scaling.factor) == (rule, pytest.approx(factor))
