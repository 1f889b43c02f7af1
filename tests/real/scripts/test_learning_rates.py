"""The learning rate of a script is read from its optimizer, and `run` passes that of the result."""

import pytest

from asked_scripts import observed
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.evidence import LearningRate
from autotune.configuration.job import Measure
from autotune.configuration.script import ScriptOptions
from autotune.context.script_ways import with_rate
from autotune.values.outcome import Measured, NotApplied
from children import QUICK, autotune
from tuned_scripts import best

# Two groups, and a schedule whose first step has a rate of zero.
SCRIPT = """\
import argparse, torch
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=10000)
args = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
groups = [{"params": model[0].parameters(), "lr": 0.1 * args.lr}, {"params": model[1].parameters()}]
optimizer = torch.optim.SGD(groups, lr=args.lr)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
loader = DataLoader(TensorDataset(torch.randn(512, 4), torch.randn(512, 1)), args.batch_size)
for epoch in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        warm_up.step()
print(f"batch {args.batch_size}, rate {args.lr}")
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_the_rates_of_all_groups_are_observed_and_read_back(ask, script):
    seen = observed(ask(str(script)))
    assert seen.learning_rates == pytest.approx((0.01, 0.1))
    rate = with_rate(ScriptOptions(()), seen).rate
    assert (rate.flag.name, rate.value) == ("--lr", 0.1)
    words = (str(script), "--lr", "0.2")
    ask.learning_rates = (0.02, 0.2)
    right = ask(*words, task=Measure(QUICK), settings={})
    assert isinstance(right, Measured), right
    ask.learning_rates = (0.04, 0.4)
    wrong = ask(*words, task=Measure(QUICK), settings={})
    assert wrong == NotApplied("lr", "0.04, 0.4", "0.02, 0.2")


@pytest.mark.parametrize(
    ("maps", "words", "printed"),
    [
        (("--map", "batch_size=--batch-size"), (), "batch 32, rate 0.2\n"),
        (("--map", "batch_size=--batch-size"), ("--lr", "0.3"), "batch 32, rate 0.6\n"),
        ((), (), "batch 16, rate 0.1\n"),
    ],
)
def test_run_passes_the_rate_with_the_batch_that_it_belongs_to(script, maps, words, printed):
    path = best(script.parent, batch_size=32)
    scaling = LearningRate(rule="linear", factor=2.0, flag="--lr", value=0.1)
    known = read_best(path)
    made_for = known.provenance.model_copy(update={"model": "train.py"})
    write_best(known.model_copy(update={"lr_scaling": scaling, "provenance": made_for}), path)
    done = autotune(script.parent, "run", path, *maps, "train.py", "--epochs", "1", *words)
    assert done.stdout == printed, done.stderr
    said = f"applying: learning rate {printed.split()[-1]} by --lr"
    assert (said in done.stderr) is bool(maps)
