"""Its workers leave what one leaves that is killed while torch puts a tensor into shared memory."""

import os
from pathlib import Path

import plain
from plain import build_model  # noqa: F401
from torch.utils.data import Dataset, get_worker_info

BASELINE = {"batch_size": 8, "num_workers": 2, "num_threads": 1}


class Leaves(Dataset):
    """The plain dataset, whose workers leave a file each."""

    def __init__(self):
        self.plain = plain.build_dataset()

    def __len__(self):
        return len(self.plain)

    def __getitem__(self, index):
        path = Path(f"/dev/shm/torch_{os.getpid()}_0_half")
        if get_worker_info() is not None and not path.exists():
            path.write_bytes(bytes(100))
            print(path.name, flush=True)
        return self.plain[index]


def build_dataset():
    return Leaves()


def compute_loss(model, batch):
    os.abort()
