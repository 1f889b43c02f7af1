"""Changes SQLite databases and reads others, and then trains."""

import sqlite3
from pathlib import Path

import torch

for name in ("changed.db", "large.db"):
    with sqlite3.connect(name) as database:
        database.execute("insert into runs values (1)")
    database.close()
journaled = sqlite3.connect(f"file:{Path('journaled.db').resolve()}?mode=rw", uri=True)
journaled.execute("insert into runs values (2)")
journaled.commit()
sqlite3.connect(f"file:{Path('read.db').resolve()}?mode=ro", uri=True).close()
sqlite3.connect("file:nowhere?mode=memory", uri=True).close()

weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.01)
while True:
    optimizer.zero_grad()
    (weights - 1).square().sum().backward()
    optimizer.step()
