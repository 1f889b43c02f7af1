"""What a training is told in and for: tokens, the time of a run."""

import json
from dataclasses import asdict, replace
from itertools import chain, repeat

import pytest
import torch
import yaml
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from autotune.configuration.best_config import read_best
from autotune.configuration.constraints import THROUGHPUT, Objective, fixed_seconds
from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import survey
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.report.tables import json_text
from autotune.searching.confirmation.result import ColdCosts
from autotune.study.archive import find_study
from autotune.training.tasks import count_tokens
from autotune.values.measurement import TokenCount
from autotune.values.outcome import Inspected, Measured, UserError
from children import WORKLOADS, ended_as, job_for, measured, run_child
from factories import cpu_machine, measurement
from reporting import Page
from scripted_runner import FACTS, ScriptedRunner, batch_of, events_of, options_in, unstored_in
from shown_search import lines_of
from study_factories import trial

COUNTS = Inspected(cpu_machine(), replace(FACTS, counts_tokens=True))


def in_tokens(config, phase):
    """As many samples/s as a batch has, with 50 tokens in each."""
    return Measured(replace(measurement(batch_of(config)), token_count=TokenCount(5000, 100)))


def loader_of(lengths, batch_size=2):
    rows = [torch.ones(length) for length in lengths]
    return DataLoader(rows, batch_size=batch_size, collate_fn=torch.cat)


def test_every_sample_of_a_small_set_is_counted_once():
    assert count_tokens(loader_of([1, 2, 3, 4]), len) == TokenCount(10, 4)


def test_counting_ends_with_the_time_but_has_a_batch():
    seconds = chain([0.0], repeat(1.0))
    counted = count_tokens(loader_of([3] * 100), len, lambda: next(seconds))
    assert counted == TokenCount(6, 2)


def test_each_configuration_counts_the_same_samples():
    lengths = [number % 50 + 1 for number in range(10_000)]
    small, large = (count_tokens(loader_of(lengths, size), len, lambda: 0.0) for size in (10, 100))
    assert small == large
    assert small.samples == 1000


def test_a_stream_without_a_full_batch_has_no_count():
    class Stream(IterableDataset[Tensor]):
        def __iter__(self):
            yield torch.ones(3)

    assert count_tokens(DataLoader(Stream(), batch_size=2, collate_fn=torch.cat), len) is None


def test_a_child_counts_the_tokens_of_the_samples_if_it_is_asked(tmp_path):
    job = job_for(WORKLOADS / "counts_tokens.py")
    run = measured(run_child(tmp_path, replace(job, count_tokens=True)))
    counted, rate = run.token_count, run.samples_per_second
    assert counted.samples >= 8
    assert 1 < counted.tokens / counted.samples < 9
    assert run.tokens_per_second == rate * counted.tokens / counted.samples
    silent = ended_as(Measured, run_child(tmp_path / "silent", job))
    assert silent.measurement.token_count is None


def test_a_count_that_is_no_number_of_tokens_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MISCOUNTS", "1")
    job = replace(job_for(WORKLOADS / "counts_tokens.py"), count_tokens=True)
    found = ended_as(UserError, run_child(tmp_path, job))
    assert "count_tokens must return the tokens of a batch, a whole number above 0" in found.detail
    assert "it returned 0.5" in found.detail


def test_it_is_told_wherever_a_person_reads_the_throughput(tmp_path):
    events = events_of(options_in(tmp_path), ScriptedRunner(in_tokens, inspected=COUNTS))
    lines = lines_of(events)
    assert any(line.split()[:4] == ["0", "8.0/s", "400", "tokens/s"] for line in lines)
    assert "  tokens      400 -> 6400 tokens/s" in lines
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())["evidence"]
    assert written["baseline"]["tokens_per_second"] == 400.0
    assert written["best"]["tokens_per_second"] == 6400.0
    data = read_report(find_study(str(tmp_path)))
    assert ("tokens", "400 -> 6400 tokens/s") in data.facts
    trials = json.loads(json_text(data))["trials"]
    assert {one["tokens_per_second"] for one in trials} == {400, 800, 1600, 3200, 6400}
    assert "6,400 tokens/s" in " ".join(Page(page(data)).text.split())


@pytest.mark.parametrize("asks", [True, False])
def test_jobs_ask_for_a_count_where_the_workload_has_one(asks, tmp_path):
    runner = ScriptedRunner(**({"inspected": COUNTS} if asks else {}))
    context = survey(unstored_in(tmp_path), runner)
    assert context.job(Measure(MeasurePlan()), context.baseline).count_tokens is asks


def test_a_search_without_tokens_says_nothing_of_them(tmp_path):
    lines = lines_of(events_of(unstored_in(tmp_path), ScriptedRunner(inspected=COUNTS)))
    assert "tokens/s" not in "\n".join(lines)
    assert "tokens_per_second" not in (tmp_path / "best.yaml").read_text()
    assert read_best(tmp_path / "best.yaml").evidence.tokens_per_second is None


EAGER = measurement(100.0)
"""2 s to start, 0.5 s to build, 0.4 s more in the first step."""
COMPILED = replace(measurement(200.0), warmup_step_seconds=(40.1, 0.1), compile_seconds=38.0)


def test_one_time_seconds_are_start_building_and_warming_up_in_a_cold_cache():
    assert fixed_seconds(EAGER) == pytest.approx(2 + 0.5 + 0.4)
    assert fixed_seconds(COMPILED) == pytest.approx(2 + 0.5 + 40)
    assert fixed_seconds(EAGER, cold_one_time_seconds=30) == pytest.approx(32.5)
    assert fixed_seconds(COMPILED, cold_one_time_seconds=30) == pytest.approx(42.5)


def test_the_time_of_a_run_is_told_as_its_throughput():
    whole = Objective(1000).value(EAGER)
    assert 1000 / whole == pytest.approx(2.9 + 1000 / 100)


def test_a_run_without_end_is_judged_by_its_throughput():
    throughput = THROUGHPUT
    assert throughput.value(COMPILED) == pytest.approx(200)
    assert Objective(10**12).value(COMPILED) == pytest.approx(200, rel=1e-6)


def timed(number, run, **settings):
    return trial(
        number,
        run.samples_per_second,
        config=TrainingConfig.of(settings),
        stored_measurement=asdict(run),
    )


def test_a_run_with_a_warm_cache_is_charged_what_the_first_one_paid():
    warm = replace(COMPILED, warmup_step_seconds=(5.1, 0.1), compile_seconds=4.0)
    first = timed(1, COMPILED, batch_size=64, compile_mode="default")
    second = timed(2, warm, batch_size=64, compile_mode="default", num_workers=2)
    larger = timed(3, warm, batch_size=128, compile_mode="default")
    costs = ColdCosts([timed(0, EAGER), first, second, larger], [EAGER])
    assert costs.compile_seconds(second.config) == 38
    assert costs.compile_seconds(larger.config) == 4, "another batch size is another graph"
    assert costs.fixed_seconds(first.config, COMPILED) == pytest.approx(42.5)
    assert costs.fixed_seconds(second.config, warm) == pytest.approx(42.5)


@pytest.mark.parametrize("own", [{"compile_mode": "default"}, {}], ids=["asked", "by itself"])
def test_a_baseline_that_compiles_is_charged_what_its_first_process_paid(own):
    warm = replace(COMPILED, warmup_step_seconds=(5.1, 0.1), compile_seconds=4.0)
    own = timed(0, warm, **own)
    costs = ColdCosts([own], [COMPILED, warm, warm])
    assert costs.compile_seconds(own.config) == 38
    assert costs.fixed_seconds(own.config, warm) == pytest.approx(42.5)


def test_a_compilation_among_steps_that_were_taken_for_steady_is_charged():
    mixed = replace(COMPILED, steady_step_seconds=20.1)
    assert mixed.one_time_seconds == 38


def test_a_run_without_compilation_is_charged_what_its_own_process_paid():
    slow_once = replace(EAGER, warmup_step_seconds=(3.1, 0.1))
    own = timed(0, slow_once)
    costs = ColdCosts([own], [slow_once, EAGER, EAGER])
    assert costs.fixed_seconds(own.config, EAGER) == pytest.approx(2.9)
    assert costs.compile_seconds(own.config) == 0
