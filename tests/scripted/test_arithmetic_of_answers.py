"""The arithmetic in best.yaml: FLOPs of a sample, and the use of the device's rate."""

import pytest

from autotune.configuration.best_config import read_best
from autotune.configuration.job import CountFlops
from autotune.values.outcome import CountedFlops, Lost
from factories import cpu_machine
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in


def in_proportion(config, phase):
    return at(100.0 * batch_of(config) / 8)


def answer_of(folder, runner, trials=5):
    events_of(options_in(folder, trials=trials), runner)
    return read_best(folder / "best.yaml")


def tasks(runner):
    return [job.task for job in runner.jobs if isinstance(job.task, CountFlops)]


@pytest.mark.parametrize("outcome", [Lost("the process died"), CountedFlops()])
def test_where_it_cannot_be_counted_there_is_none(tmp_path, outcome):
    runner = ScriptedRunner(in_proportion, counts=lambda task: outcome)
    assert answer_of(tmp_path, runner).evidence.arithmetic is None


def test_the_rate_of_products_is_measured_once_for_a_study(tmp_path):
    def counts(task):
        rate = None if "float32" in task.known_formats else 4e9
        return CountedFlops(1e6, "float32", matmul_flops_per_second=rate)

    first = ScriptedRunner(in_proportion, counts=counts)
    found = answer_of(tmp_path, first, trials=4).evidence.arithmetic
    assert found.matmul_flops_per_second == 4e9
    again = ScriptedRunner(in_proportion, counts=counts)
    continued = answer_of(tmp_path, again, trials=5).evidence.arithmetic
    assert continued.matmul_flops_per_second == 4e9
    assert [task.known_formats for task in (*tasks(first), *tasks(again))] == [(), ("float32",)]
    threads = cpu_machine().default_num_threads
    assert {task.machine_threads for task in (*tasks(first), *tasks(again))} == {threads}
