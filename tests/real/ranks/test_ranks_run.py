"""`autotune run` of a script that trains in two processes, started by it or by torch's launcher."""

import subprocess
import sys

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from factories import best_config, written
from tiers import late

SCRIPT = """
import sys
import time
from torch import distributed, nn, ones, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 2))
optimizer = optim.SGD(model.parameters(), 0.1)
for (batch,) in DataLoader(TensorDataset(ones(64, 8)), batch_size=8):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
sys.stdout.write(f"{model.bucket_bytes_cap >> 20} MiB, views {model.gradient_as_bucket_view}\\n")
distributed.destroy_process_group()
time.sleep(0.5)  # a process that ends at once may be aborted by gloo's own threads
"""
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
RUN = ("-m", "autotune", "run", "best.yaml")


@pytest.mark.parametrize(
    "words", [(*LAUNCHER, *RUN, "train.py"), late((*RUN, "--nproc-per-node", "2", "train.py"))]
)
def test_ddp_has_the_settings_of_the_file_in_each_process(words, tmp_path):
    settings = {"batch_size": 8, "ddp_bucket_mb": 50, "gradient_as_bucket_view": True}
    best = best_config(TrainingConfig.of(settings), TrainingConfig.of({"batch_size": 8}))
    write_best(best.model_copy(update={"processes": 2}), tmp_path / "best.yaml")
    written(tmp_path, SCRIPT, "train.py")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("50 MiB, views True") == 2
    settings = "ddp_bucket_mb=50, gradient_as_bucket_view=true"
    assert done.stderr.count(f"autotune: applied: {settings}") == 1, "once, not by each process"
    assert done.stderr.count("best.yaml was made for something else") == 1
    assert "processes:" not in done.stderr
    assert "Traceback" not in done.stderr
