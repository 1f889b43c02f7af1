"""Which logs of a study lie on this host, and which trial each of them is of.

A search keeps the files of a trial in its own folder, those of further devices and workers below
`workers/`, and those of a search that was begun anew with --force in a folder named by a mark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from autotune.flags import folder_name
from autotune.trial_folder import TrialFolder
from autotune.tuning.storing.journal import Journal
from autotune.tuning.storing.leases import lease_of


@dataclass(frozen=True, slots=True)
class Log:
    """What a process of a trial printed."""

    trial: FrozenTrial
    path: Path
    name: str
    """Within the trial's own folder."""


def logs_here(study: str, trials: Sequence[FrozenTrial], beside: Path | None) -> list[Log]:
    """What the processes of finished trials printed, where they printed anything.

    `beside` is where the study's database lies, if that is a file.

    Raises:
        OSError: a folder cannot be read.
    """
    folders = _folders(study, beside)
    finished = (trial for trial in trials if trial.state.is_finished())
    return [log for trial in finished for log in _logs(trial, folders[trial.number])]


def hosts_of(trials: Sequence[FrozenTrial]) -> dict[str, list[int]]:
    """Each host that ran trials, as far as the study knows, with their numbers."""
    ran = ((host_of(trial), trial.number) for trial in trials if trial.state.is_finished())
    hosts: dict[str, list[int]] = defaultdict(list)
    for host, number in ran:
        if host is not None:
            hosts[host].append(number)
    return dict(hosts)


def host_of(trial: FrozenTrial) -> str | None:
    """Which host keeps the logs of a trial; None where none does, or nobody knows."""
    lease = lease_of(trial.user_attrs.get("lease"))
    if lease is None or trial.user_attrs.get("foreseen"):
        return None
    return lease.host.partition("/")[0]


def _folders(study: str, beside: Path | None) -> Mapping[int, list[Path]]:
    """The folders that a trial of this number may have its files in."""
    found: dict[int, list[Path]] = defaultdict(list)
    for home in dict.fromkeys(_homes(study, beside)):
        for trials in (home / "trials", *sorted(home.glob("workers/*/trials"))):
            for folder in trials.iterdir() if trials.is_dir() else ():
                if folder.name.isdigit():
                    found[int(folder.name)].append(folder)
    return found


def _homes(study: str, beside: Path | None) -> Iterator[Path]:
    """The folders in which this study's searches worked, by what their journals say."""
    begun, _, mark = study.rpartition("@")
    usual = [Path("studies", folder_name(name)) for name in (study, begun) if name]
    for folder in (*([beside] if beside else []), *usual):
        if Journal(folder).names(study):
            forced = folder / mark
            yield (forced if begun and forced.is_dir() else folder).resolve()


def _logs(trial: FrozenTrial, folders: Sequence[Path]) -> Iterator[Log]:
    for folder in folders:
        for path in sorted(folder.rglob("*.log")):
            if path.is_file() and path.stat().st_size and _is_of(trial, path.parent):
                yield Log(trial, path, path.relative_to(folder).as_posix())


def _is_of(trial: FrozenTrial, folder: Path) -> bool:
    """Whether a process with this trial's configuration worked in a folder.

    Numbers begin anew where a study does, and what ran before may lie there still.
    """
    try:
        job: Any = json.loads(TrialFolder(folder).job.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return isinstance(job, dict) and job.get("config") == trial.user_attrs.get("config")
