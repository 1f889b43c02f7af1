"""A training that saves over files of the user's after some steps."""

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset


def save(model: torch.nn.Module) -> None:
    torch.save(model.state_dict(), "last.pt")
    Path("newest.txt").rename("older.txt")
    Path("older.txt").chmod(0o600)
    Path("older.txt").write_text("of a run")
    with Path("log.txt").open("a") as log:
        log.write("a run\n")
    Path("new.json").write_text("{}")
    Path("new.json").replace("replaced.json")
    Path("deleted.txt").unlink(missing_ok=True)
    shutil.rmtree("checkpoint", ignore_errors=True)
    Path("made.txt").write_text("by the script")
    Path(tempfile.gettempdir(), "torchinductor_mine", "lock").write_text("by the compiler")


if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(4096, 4), torch.randn(4096, 1))
    steps = 0
    while True:
        for inputs, targets in DataLoader(data, batch_size=16):
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == int(sys.argv[1]):
                save(model)
