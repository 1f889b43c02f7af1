"""Scripts that mind what an earlier run of them left: a folder in the way, a checkpoint."""

from dataclasses import replace

import pytest

from autotune.configuration.script import ScriptOptions
from autotune.searching.run.events import Answered
from autotune.values.errors import WorkloadError
from autotune.values.outcome import ObservedLoss
from children import hurried
from factories import written
from scripted_runner import LOSSES, SEEN, ScriptedRunner, at, events_of, options_in

WORKLOAD = 4
SPACE = "amp_dtype: [null, bfloat16]\n"
TRAINS = """
import os, pathlib, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
place = pathlib.Path("runs")
{begin}
x = torch.randn(2048, 8)
data = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
{load}
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(10_000):
    for points, classes in DataLoader(data, batch_size=64, shuffle=True):
        nn.functional.cross_entropy(model(points), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
    {save}
"""
MAKES_ITS_FOLDER = TRAINS.format(
    begin="place.mkdir()", load="", save="torch.save(model.state_dict(), place / 'last.pt')"
)
RESUMES = TRAINS.format(
    begin="place.mkdir(exist_ok=True)",
    load="if (place / 'last.pt').exists(): model.load_state_dict(torch.load(place / 'last.pt'))",
    save="torch.save(model.state_dict(), place / 'last.pt')",
)


def searched(folder, script, *words):
    written(folder, script, "train.py")
    space = written(folder, SPACE)
    budget = ("--space", space, "--trials", "2", "--time-budget", "180s")
    done = hurried(folder, "search", "train.py", *budget, *words)
    return done.returncode, done.stderr


def test_a_folder_that_the_observed_run_left_in_the_way_is_named_with_what_to_do(tmp_path):
    code, said = searched(tmp_path, MAKES_ITS_FOLDER)
    assert code == WORKLOAD
    assert "FileExistsError" in said
    assert f"The profiling run wrote to {tmp_path / 'runs'}" in said.replace("\n", " ")
    (tmp_path / "runs" / "last.pt").unlink(missing_ok=True)
    (tmp_path / "runs").rmdir()
    code, said = searched(tmp_path, MAKES_ITS_FOLDER, "--temp-workdir")
    assert code == 0, said


def test_a_script_that_goes_on_from_its_own_checkpoint_is_no_reference(tmp_path):
    code, said = searched(tmp_path, RESUMES)
    assert code == WORKLOAD
    assert "train.py resumes an earlier run: its first losses were" in said
    code, said = searched(tmp_path, RESUMES, "--temp-workdir", "--study", "anew")
    assert code == 0, said


@pytest.mark.parametrize(
    ("untrained", "is_refused"), [(1.0, False), (0.8, False), (0.6, False), (0.45, True)]
)
def test_other_random_numbers_are_no_checkpoint(tmp_path, untrained, is_refused):
    def timed(config, phase):
        return at(200 if config["amp_dtype"] else 100)

    loss = ObservedLoss("", (1.0,) * 10, moves=LOSSES.moves)
    runner = ScriptedRunner(timed, quality=lambda *_: 0.1, observed=replace(SEEN, loss=loss))
    runner.untrained = untrained
    runner.first_steps = lambda _: replace(LOSSES, losses=(1.0,) * 10)
    options = options_in(tmp_path, SPACE, script=ScriptOptions(()), trials=2)
    if is_refused:
        with pytest.raises(WorkloadError, match="resumes an earlier run"):
            events_of(options, runner)
    else:
        assert isinstance(events_of(options, runner)[-1], Answered)
