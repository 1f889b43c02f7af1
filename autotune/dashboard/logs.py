"""Find the logs of a study's trials on this host.

A search keeps the files of a trial in its own folder; extra devices and workers keep theirs below
`workers/`. A search begun with --force keeps them in a folder named by its mark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from autotune.configuration.flag_types import folder_name
from autotune.process.common.trial_folder import TrialFolder
from autotune.storage.journal import Journal
from autotune.storage.leases import LEASE, lease_of
from autotune.storage.trial_details import CONFIG, TrialDetails


@dataclass(frozen=True, slots=True)
class Log:
    """Output of a process of a trial."""

    trial: FrozenTrial
    path: Path
    name: str
    """Path relative to the trial's folder."""


def logs_here(study: str, trials: Sequence[FrozenTrial], beside: Path | None) -> list[Log]:
    """Return the non-empty logs of finished trials.

    Args:
        study: name of the study.
        trials: trials of the study.
        beside: folder of the study's database, if that is a file.

    Raises:
        OSError: a folder cannot be read.
    """
    folders = _folders(study, beside)
    finished = (trial for trial in trials if trial.state.is_finished())
    return [log for trial in finished for log in _logs(trial, folders[trial.number])]


def hosts_of(trials: Sequence[FrozenTrial]) -> dict[str, list[int]]:
    """Return each known host that ran trials, with their numbers."""
    ran = ((host_of(trial), trial.number) for trial in trials if trial.state.is_finished())
    hosts: dict[str, list[int]] = defaultdict(list)
    for host, number in ran:
        if host is not None:
            hosts[host].append(number)
    return dict(hosts)


def host_of(trial: FrozenTrial) -> str | None:
    """Return the host with the logs of a trial; None if there is none or it is unknown."""
    lease = lease_of(trial.user_attrs.get(LEASE))
    if lease is None or TrialDetails.of(trial.user_attrs).foreseen:
        return None
    return lease.host.partition("/")[0]


def _folders(study: str, beside: Path | None) -> Mapping[int, list[Path]]:
    """Return trial number to the folders that may hold the trial's files."""
    found: dict[int, list[Path]] = defaultdict(list)
    for home in dict.fromkeys(_homes(study, beside)):
        for trials in (home / "trials", *sorted(home.glob("workers/*/trials"))):
            for folder in trials.iterdir() if trials.is_dir() else ():
                if folder.name.isdigit():
                    found[int(folder.name)].append(folder)
    return found


def _homes(study: str, beside: Path | None) -> Iterator[Path]:
    """Yield the folders whose journals name this study."""
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
    """Return True if a folder belongs to a process with this trial's configuration.

    A new study counts from 0 again, and folders of the old one may still exist.
    """
    try:
        job: Any = json.loads(TrialFolder(folder).job.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return isinstance(job, dict) and job.get("config") == trial.user_attrs.get(CONFIG)
