"""Torch's launcher: `python -m autotune.child.launch_ranks FOLDER LIFELINE PROCESSES START`.

It is `python -m torch.distributed.run --standalone --nproc-per-node PROCESSES`, which starts
`autotune.child.main` as each rank, and two things more: it ends with its parent, and it writes the
exit codes of processes that failed to `ended.json`, because their order is known only to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from autotune.system.child_ties import hold_lifeline_at, stay_on_cores
from autotune.system.trial_folder import TrialFolder, write_atomically


def main() -> None:
    """Start the ranks, and wait until all of them have ended.

    Raises:
        ChildFailedError: a rank failed; the others were ended.
    """
    place, lifeline, processes, start = sys.argv[1:]
    hold_lifeline_at(lifeline)
    stay_on_cores()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    folder = TrialFolder(Path(place))
    options = [
        "--standalone",
        "--nproc-per-node",
        processes,
        "--log-dir",
        str(folder.launcher_logs),
    ]
    try:
        run.main([*options, "-m", "autotune.child.main", place, lifeline, start])
    except ChildFailedError as error:
        codes = {str(rank): failure.exitcode for rank, failure in error.failures.items()}
        write_atomically(folder.ended, json.dumps(codes))
        raise


if __name__ == "__main__":
    main()
