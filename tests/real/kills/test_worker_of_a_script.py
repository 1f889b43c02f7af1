"""`autotune worker` on the study of a script runs it where the search does, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from children import nobody_is_left, start_hurried, wait_until
from factories import written
from held import LONG

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("devices_to_itself")]
SCRIPT = """
import torch

open("was-here", "w").close()
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10**9):
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
"""


def first_runs(place: Path) -> int:
    """The folders below a `--workdir` in which a script ran to be observed."""
    return len(list(place.glob("inspect-script-*/was-here")))


@pytest.mark.parametrize("module", [False, True])
def test_it_waits_for_the_search_and_keeps_to_its_workdir(
    tmp_path: Path, module: bool, server_storage: str
) -> None:
    """A module is that of each host's own folder."""
    leads, joins = tmp_path / "leads", tmp_path / "joins"
    for host in (leads, joins):
        (host / "pack").mkdir(parents=True)
        written(host / "pack", SCRIPT, "train.py")
    script, runs = str(leads / "pack" / "train.py"), tmp_path / "runs"
    study, called = ("pack.train", ["-m", "pack.train"]) if module else ("train", [script])
    written(leads, "num_threads: [1, 2]\n")
    shared = ["--storage", server_storage]
    model = [*called[:-1], "--model", called[-1]]
    worker = start_hurried(joins, "worker", study, *shared, *model, "--")
    started = [worker]
    try:
        said = joins / "stderr.txt"
        assert wait_until(lambda: "waiting" in said.read_text(), LONG), said.read_text()
        assert not list(joins.rglob("was-here")), "it has run nothing"
        flags = ["--space", "space.yaml", "--trials", "2", "--workdir", runs]
        started.append(search := start_hurried(leads, "search", *shared, *flags, *called, "--"))
        assert search.wait(LONG) == 0, (leads / "stderr.txt").read_text()
        assert worker.wait(LONG) == 0, said.read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert first_runs(runs) == 2, "the search's and the worker's"
    assert not list(joins.rglob("was-here"))
    assert nobody_is_left(tmp_path)
