"""A training that saves over files of the user's after some steps."""

import shutil
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset


def move(source: str, target: str) -> None:
    if Path(source).exists():
        Path(source).replace(target)


def save(model: torch.nn.Module) -> None:
    if "safetensors" in sys.argv:
        from safetensors.torch import save_file

        save_file(model.state_dict(), "model.safetensors")
        return
    for number in range(50 if "many" in sys.argv else 0):
        Path(f"{number}.txt").write_text("of a run")
    torch.save(model.state_dict(), "last.pt")
    scripted = torch.jit.script(torch.nn.Linear(1, 1))
    scripted.save("jit.pt")
    torch.jit.save(scripted, "jit2.pt")
    writer = get_context("fork").Process(target=Path("forked.txt").write_text, args=("a run",))
    writer.start()
    writer.join()
    with Path("log.txt").open("a") as log:
        log.write("a run\n")
    Path("new.json").write_text("{}")
    move("new.json", "replaced.json")
    Path("deleted.txt").unlink(missing_ok=True)
    Path("link").unlink(missing_ok=True)
    shutil.rmtree("checkpoint", ignore_errors=True)
    move("newest.txt", "older.txt")
    Path("older.txt").chmod(0o600)
    Path("older.txt").write_text("of a run")
    for _ in range(2):  # the second time, what was best before the run goes
        move("best.txt", "second.txt")
        Path("best.txt").write_text("of a run")
    Path("made").mkdir(exist_ok=True)
    move("moved.txt", "made/moved.txt")
    shutil.rmtree("made")
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
