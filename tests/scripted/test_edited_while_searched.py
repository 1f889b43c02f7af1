"""Files of a training that are edited while it is searched end the search; trials are kept."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

import autotune
from asked_scripts import LONG, SCRIPTS, Ask, observed
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.script import ScriptOptions
from autotune.process.runner import SubprocessRunner
from autotune.study.archive import read_archive
from autotune.values.errors import FilesChangedError
from autotune.values.outcome import Inspected, Surroundings
from covering import covers
from factories import cpu_machine, found_here, written
from scripted_runner import (
    FACTS,
    SEEN,
    Phase,
    ScriptedRunner,
    at,
    events_of,
    options_in,
    unstored_in,
)

WORKERS = "num_workers: [0, 1, 2, 4]\n"
BEFORE, AFTER = "WIDTH = 8\n", "WIDTH = 16\n"


def by_workers(config, phase):
    return at(100 + 20 * int(config["num_workers"] or 0))


@dataclass
class Editing(ScriptedRunner):
    """Edits a file while a certain process runs."""

    edit: Callable[[], object] = lambda: None
    at_process: int = 0
    is_due: Callable[[Phase], bool] = lambda phase: phase == "trial"
    seen: int = 0

    def run(self, job, folder):
        outcome = super().run(job, folder)
        if self.is_due(self.asked[-1].phase):
            self.seen += 1
            if self.seen == self.at_process:
                self.edit()
        return outcome


def with_module(folder):
    """A module beside model.py, and what an inspection tells of both."""
    path = written(folder, BEFORE, "net.py")
    modules = {"net.py": hashlib.sha256(BEFORE.encode()).hexdigest()}
    return path, Inspected(cpu_machine(), replace(FACTS, local_modules=modules))


def searched(folder, runner):
    events_of(unstored_in(folder, WORKERS, trials=4), runner)


def trials(options):
    archive = read_archive(str(options.study.storage))
    return [(one.number, one.config.as_dict()) for one in archive.finished]


@covers("R18")
@pytest.mark.parametrize("name", ["model.py", "net.py"])
def test_the_search_ends_and_goes_on_when_the_file_is_put_back(tmp_path, name):
    _, inspected = with_module(tmp_path)
    options = options_in(tmp_path, WORKERS, trials=4)
    own = (tmp_path / name).read_text()
    runner = Editing(
        by_workers,
        inspected=inspected,
        edit=lambda: (tmp_path / name).write_text(AFTER),
        at_process=2,
    )
    with pytest.raises(FilesChangedError, match=f"{name} changed during the search"):
        events_of(options, runner)
    known = trials(options)
    assert [number for number, _ in known] == [0, 1], "the second trial's answer does not count"
    (tmp_path / name).write_text(own)
    again = ScriptedRunner(by_workers, inspected=inspected)
    events_of(options, again)
    assert trials(options)[:2] == known
    assert read_best(tmp_path / "best.yaml").config["num_workers"] == 4


@covers("R18")
def test_a_change_in_the_confirmation_gives_no_answer(tmp_path):
    path, inspected = with_module(tmp_path)
    runner = Editing(
        by_workers,
        inspected=inspected,
        edit=lambda: path.write_text(AFTER),
        at_process=3,
        is_due=lambda phase: phase == "confirmation",
    )
    with pytest.raises(FilesChangedError, match=r"net\.py changed during"):
        searched(tmp_path, runner)
    assert not (tmp_path / "best.yaml").exists()


def test_a_config_file_that_the_script_writes_itself_is_left_out(tmp_path):
    config = written(tmp_path, "lr: 0.1\n", "train.yaml")

    class Writes(ScriptedRunner):
        def run(self, job, folder):
            config.write_text(f"run: {len(self.jobs)}\n")
            return super().run(job, folder)

    seen = replace(SEEN, surroundings=Surroundings(overwritten=(str(config),)))
    script = ScriptOptions(("--config", str(config)))
    options = unstored_in(tmp_path, WORKERS, trials=4, script=script)
    events_of(options, Writes(by_workers, observed=seen))
    assert (tmp_path / "best.yaml").exists()


def test_a_module_that_the_script_writes_itself_is_none_of_its_own(tmp_path):
    written(tmp_path, "WIDTH = 8\n", "own.py")
    lines = (SCRIPTS / "plain_loop.py").read_text()
    written(
        tmp_path,
        "import pathlib, time\n"
        "made = pathlib.Path(__file__).with_name('made.py')\n"
        "made.write_text(f'AT = {time.time()}')\n"
        f"import made, own\n{lines}",
        "train.py",
    )
    with SubprocessRunner(tmp_path / "inductor") as runner:
        outcome = Ask(runner, tmp_path / "trial")(str(tmp_path / "train.py"), *LONG)
    modules = observed(outcome).workload.local_modules
    assert list(modules) == ["own.py"]


def test_an_edit_while_the_script_is_observed_is_seen(tmp_path):
    model = written(tmp_path, BEFORE, "model.py")
    runner = Editing(
        by_workers,
        observed=SEEN,
        edit=lambda: model.write_text(AFTER),
        at_process=1,
        is_due=lambda phase: phase == "observation",
    )
    options = unstored_in(tmp_path, WORKERS, trials=4, script=ScriptOptions(()))
    with pytest.raises(FilesChangedError, match=r"model\.py changed during the search"):
        events_of(options, runner)


def test_a_file_that_is_saved_without_a_change_is_none(tmp_path):
    path, inspected = with_module(tmp_path)
    edit = lambda: path.write_text(BEFORE)  # noqa: E731
    searched(tmp_path, Editing(by_workers, inspected=inspected, edit=edit, at_process=2))
    assert (tmp_path / "best.yaml").exists()


@covers("R18")
def test_a_config_file_of_a_script_counts(tmp_path):
    config = written(tmp_path, "lr: 0.1\n", "train.yaml")
    runner = Editing(
        by_workers, observed=SEEN, edit=lambda: config.write_text("lr: 1\n"), at_process=2
    )
    script = ScriptOptions(("--config", str(config)))
    options = unstored_in(tmp_path, WORKERS, trials=4, script=script)
    with pytest.raises(FilesChangedError, match=r"train\.yaml changed during the search"):
        events_of(options, runner)


def test_an_answer_knows_the_files_that_were_imported(tmp_path):
    path, inspected = with_module(tmp_path)
    searched(tmp_path, ScriptedRunner(by_workers, inspected=inspected))
    best = read_best(tmp_path / "best.yaml")
    assert best.provenance.imports == {"net.py": hashlib.sha256(BEFORE.encode()).hexdigest()[:8]}
    write_best(found_here(best, tmp_path / "model.py"), tmp_path / "best.yaml")
    autotune.load(tmp_path / "best.yaml", strict=True)
    path.write_text(AFTER)
    with pytest.raises(autotune.MismatchError, match=r"net\.py: changed since the search"):
        autotune.load(tmp_path / "best.yaml", strict=True)
    path.unlink()
    with pytest.warns(autotune.MismatchWarning, match=r"net\.py: imported in the search, not here"):
        autotune.load(tmp_path / "best.yaml")
