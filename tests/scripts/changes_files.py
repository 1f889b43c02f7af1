"""Changes files of a folder, its argument, in ways that open none of them, and then trains."""

import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import torch

folder = Path(sys.argv[1])
os.truncate(folder / "truncated", 0)
(folder / "renamed").rename(folder / "renamed to")
(folder / "removed").rmdir()
with sqlite3.connect(folder / "written.db") as database:
    database.execute("create table if not exists runs (number)")
    database.execute("insert into runs values (1)")
database.close()
with sqlite3.connect(folder / "read.db") as database:
    database.execute("select * from data").fetchall()
database.close()
sqlite3.connect(":memory:").close()

kept = Path(tempfile.gettempdir()) / "kept"
kept.write_text("again")
for _ in range(2):
    (Path(tempfile.gettempdir()) / "new").write_text("of this run")
shutil.rmtree(tempfile.mkdtemp())

new = folder / "new"
new.write_text("")
os.truncate(new, 10)
new.rename(folder / "newer")
(folder / "newer").unlink()

weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.01)
while True:
    optimizer.zero_grad()
    (weights - 1).square().sum().backward()
    optimizer.step()
