"""`autotune compare` tells its result, from timings that are known beforehand."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from children import WORKLOADS
from command_line import command
from factories import best_config, found_here
from scripted_runner import ScriptedRunner, at, batch_of

SMALL, LARGE = (TrainingConfig.of({"batch_size": size}) for size in (8, 64))
NOT_FASTER = 8


class Runner(ScriptedRunner):
    """Times the small batch at 100 samples/s; remembers the folder of each timing."""

    def __init__(self, timing):
        timed = count()
        super().__init__(lambda c, _: at(100) if batch_of(c) == 8 else timing(next(timed)))
        self.names: list[str] = []

    def run(self, job, folder):
        if job.config is not None:
            self.names.append(folder.name)
        return super().run(job, folder)


@pytest.fixture
def compare(tmp_path, monkeypatch):
    """`autotune compare` of large.yaml with the answers that follow, by a scripted runner."""
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copy(WORKLOADS / "plain.py", "model.py"))
    for name, config in (("large.yaml", LARGE), ("small.yaml", SMALL)):
        write_best(found_here(best_config(config, SMALL), model), Path(name))

    def compared(timing, *words):
        runner = Runner(timing)
        monkeypatch.setattr("autotune.commands.execute.SubprocessRunner", lambda *_, **__: runner)
        words = ("model.py", "large.yaml", *words, "--rounds", "6", "--json", "--require-faster")
        return command("compare", *words), runner

    return compared


def disturbed(number, numbers):
    """1.5 times as fast, and 0.18x in timings that were disturbed."""
    if number not in numbers:
        return at(150)
    run = at(18).measurement
    busy = (replace(block, noise=Noise(foreign=0.49)) for block in run.blocks)
    return Measured(replace(run, blocks=tuple(busy)))


def result_of(done):
    return json.loads(done.out)


def test_the_result_is_one_sentence_and_one_json_object(compare):
    done, _ = compare(lambda _: at(150), "small.yaml")
    assert done.code == 0
    said = "large.yaml is 1.50x as fast as small.yaml (1.50 to 1.50, 6 rounds)"
    assert done.err.splitlines()[-1] == said
    result = result_of(done)
    assert result["ratio"] == pytest.approx(1.5)
    assert (result["rounds"], len(result["ratios"])) == (6, 6)
    assert result["confirmed_faster"] is True
    assert result["a"]["samples_per_second"] == pytest.approx(150)
    assert result["b"]["settings"] == "small.yaml"


def test_a_disturbed_round_is_repeated_and_told(compare):
    done, runner = compare(partial(disturbed, numbers={0, 3}), "small.yaml")
    result = result_of(done)
    assert result["ratios"] == [1.5] * 6
    assert (result["disturbed_rounds"], result["repeated_rounds"]) == (0, 2)
    assert len(set(runner.names)) == 2 * 8
    lines = done.err.splitlines()
    void = [line for line in lines if "other programs used 49 % of the cores" in line]
    assert [line.split()[:2] for line in void] == [["round", "1"], ["round", "3"]]
    assert len([line for line in lines if "1.500x" in line]) == 6


def test_an_answer_alone_has_to_be_as_fast_as_was_confirmed(compare):
    ratios = [0.8, 1.3, 1.6, 1.9, 2.2, 2.5]
    done, _ = compare(lambda number: at(100 * ratios[number]))
    assert done.code == 0
    said = "6 rounds); previously confirmed 1.45 to 1.55, which still holds"
    assert done.err.splitlines()[-1].endswith(said)
    done, _ = compare(lambda number: at(100 * ratios[number]), "small.yaml")
    assert done.code == NOT_FASTER, "of two answers, the first has to be faster"
