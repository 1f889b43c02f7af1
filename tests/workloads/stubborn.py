"""Two DataLoader workers hang, and neither they nor their parent die of SIGTERM."""

import signal
import time

import plain
from plain import build_model, compute_loss  # noqa: F401
from torch.utils.data import Dataset, get_worker_info

BASELINE = {"batch_size": 8, "num_workers": 2, "num_threads": 1}
signal.signal(signal.SIGTERM, signal.SIG_IGN)


class Hanging(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if get_worker_info() is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # PyTorch's workers reset it
            print("a worker hangs", flush=True)
            time.sleep(3600)
        return plain.build_dataset()[index]


def build_dataset():
    return Hanging()
