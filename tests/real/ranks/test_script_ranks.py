"""A script of two processes that join each other: observed, timed and probed as one training."""

import pytest

from asked_scripts import LOADER, LONG, SCRIPTS, Ask, InTwo, observed
from autotune.configuration.job import Measure, Probe
from autotune.values.outcome import Measured, NotApplied, Probed
from children import QUICK, ended_as, measured
from covering import covers
from factories import written
from needs import installed

OF_MODEL = ("compile_mode", "amp_dtype", "channels_last", "num_threads")
OF_DDP = ("ddp_bucket_mb", "gradient_as_bucket_view", "ddp_comm_dtype")
NETWORK = """
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 8, 3), nn.Linear(32, 2)

    def forward(self, x):
        return self.last(self.first(x.view(-1, 2, 4, 4)).relu().flatten(1))


def main() -> None:"""


@pytest.fixture
def ask(runner, tmp_path):
    return Ask(InTwo(runner), tmp_path / "trial")


def log_of(ask, rank):
    return (ask.folder / (f"stdout.rank{rank}.log" if rank else "stdout.log")).read_text()


def variant(folder, *changes):
    """The path of another version of the script."""
    source = (SCRIPTS / "ddp_loop.py").read_text()
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return str(written(folder, source, "train.py"))


def test_a_probe_takes_the_samples_of_all_ranks(ask):
    outcome = ask("ddp_loop.py", *LONG, task=Probe(3000, (0,), loss="mean"), settings={})
    assert isinstance(outcome, Probed), outcome
    epochs = log_of(ask, 0).splitlines()
    assert len(epochs) in (5, 6), "3000 samples are nearly six epochs of all, not of one"
    assert 0 < outcome.qualities[0] < float(epochs[-1].split()[-1]), "it goes on falling"


@pytest.mark.parametrize("loss", ["mean", None])
def test_a_script_that_ends_by_itself_has_a_quality(loss, ask):
    """Its processes have let go of each other by then."""
    task = Probe(10**6, (0,), loss=loss)
    outcome = ended_as(Probed, ask("ddp_loop.py", task=task, settings={}, metric=r"loss ([0-9.]+)"))
    last = float(log_of(ask, 0).split()[-1])
    assert outcome.qualities[0] == pytest.approx(last, abs=0.1 if loss else 0.0)


@covers("X8")
def test_every_rank_gets_the_arguments_before_they_leave_the_files(ask, tmp_path):
    script = variant(
        tmp_path, ("    args = parser", "    print(*sys.argv[1:], flush=True)\n    args = parser")
    )
    assert isinstance(ask(script, *LONG, task=Measure(QUICK), settings={}), Measured)
    assert log_of(ask, 0).splitlines()[0] == log_of(ask, 1).splitlines()[0] == " ".join(LONG)
    assert '["***","***"]' in "".join((ask.folder / "job.json").read_text().split())


def test_settings_of_the_model_are_put_on_what_ddp_wraps(ask, tmp_path):
    network = ("    network = nn.Sequential(", "    network = Network() or nn.Sequential(")
    script = variant(tmp_path, ("\ndef main() -> None:", NETWORK), network)
    settings = {"compile_mode": "default", "amp_dtype": "bfloat16", "channels_last": True}
    measured(ask(script, *LONG, task=Measure(QUICK), settings=dict(settings), asked=OF_MODEL))


@pytest.mark.parametrize(
    ("line", "compiled"),
    [
        (
            "    optimizer = torch.optim",
            "    model = torch.compile(model)\n    optimizer = torch.optim",
        ),
        ("    optimizer = torch.optim", "    model.compile()\n    optimizer = torch.optim"),
        ("    model = Distr", "    network.compile()\n    model = Distr"),
        ("    model = Distr", "    network = torch.compile(network)\n    model = Distr"),
    ],
    ids=["wrapper around", "around in place", "within in place", "wrapper within"],
)
def test_a_script_that_compiles_around_or_within_ddp_is_seen_to_do_so(
    line, compiled, ask, tmp_path
):
    network = ("    network = nn.Sequential(", "    network = Network() or nn.Sequential(")
    script = variant(tmp_path, ("\ndef main() -> None:", NETWORK), network, (line, compiled))
    seen = observed(ask(script, *LONG))
    assert seen.workload.baseline["compile_mode"] == "default"
    assert seen.own == ("compile_mode", "compile_dynamic")


def test_settings_of_ddp_reach_it(ask):
    settings = {"ddp_bucket_mb": 5, "gradient_as_bucket_view": True}
    settings |= {"ddp_comm_dtype": "bfloat16"}
    measured(ask("ddp_loop.py", *LONG, task=Measure(QUICK), settings=dict(settings), asked=OF_DDP))


def test_what_the_script_passes_to_ddp_gives_way_to_other_values_alone(ask):
    words = ("ddp_loop.py", *LONG, "--bucket-cap-mb", "3")
    seen = observed(ask(*words))
    assert seen.workload.baseline["ddp_bucket_mb"] == 3
    assert (seen.own, seen.fixed) == (("ddp_bucket_mb",), {})
    asked = {"task": Measure(QUICK), "settings": {"ddp_bucket_mb": 5}, "asked": OF_DDP}
    assert ask(*words, **asked) == NotApplied("ddp_bucket_mb", "5", "3")
    ask.own = {"ddp_bucket_mb": 3}
    assert isinstance(ask(*words, **asked), Measured)


def test_a_hook_of_the_script_s_own_comes_before_ours(ask, tmp_path):
    hook = (
        "    optimizer = torch.optim",
        "    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "    model.register_comm_hook(None, default_hooks.allreduce_hook)\n"
        "    optimizer = torch.optim",
    )
    script = variant(tmp_path, hook)
    assert "ddp_comm_dtype" in observed(ask(script, *LONG)).fixed
    settings = {"ddp_comm_dtype": "bfloat16"}
    outcome = ask(script, *LONG, task=Measure(QUICK), settings=dict(settings), asked=OF_DDP)
    assert outcome == NotApplied("ddp_comm_dtype", "bfloat16", "another hook")


ACCELERATE = """
from accelerate import Accelerator
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(512, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for epoch in range(10_000):
    for features, target in data:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(features), target))
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize("library", ["accelerate", "transformers", "lightning"])
def test_libraries_that_join_the_processes_themselves_are_timed(library, ask, tmp_path):
    installed(library)
    words = (str(tmp_path / "out"), "100000")
    if library == "accelerate":
        script, step = str(written(tmp_path, ACCELERATE, "train.py")), 32
        words = ()
    elif library == "transformers":
        script, step = "hf_trainer.py", 16
    else:
        source = (SCRIPTS / "lightning_fit.py").read_text()
        two = source.replace('accelerator="cpu",', 'accelerator="cpu", devices=2, strategy="ddp",')
        script, step = str(written(tmp_path, two, "train.py")), 16
    outcome = ask(script, *words, task=Measure(QUICK), settings={"num_workers": 1}, asked=LOADER)
    assert isinstance(outcome, Measured), outcome
    assert {block.samples % step for block in outcome.measurement.blocks} == {0}
