"""Odd names, locales, terminals, homes and disks: it works, or says in a line why it cannot."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import torch

from autotune.commands.common import options_of
from autotune.searching.run.events import Answered
from children import WORKLOADS, completed, nobody_is_left, succeeded
from children import autotune as run_autotune
from command_line import told
from covering import covers
from databases import empty_database
from factories import written
from needs import missing
from scripted_runner import ScriptedRunner, at, batch_of, events_of, unstored_in

USAGE, WORKLOAD, STORAGE = 2, 4, 5
NASTY = "ünï \"q\" 'q' $(touch owned) ;&|<> \n%s{}"
PLAIN = WORKLOADS / "plain.py"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def run_with(environ, folder, *arguments):
    """A finished command in another environment; None takes a variable away."""
    changed = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-m", "autotune", *map(str, arguments)],
        cwd=folder,
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        timeout=120,
        check=False,
    )


@covers("S16", "X3", "X9")
def test_a_folder_with_every_odd_character_is_worked_in_and_no_shell_sees_its_name(tmp_path):
    folder = tmp_path / NASTY
    folder.mkdir()
    shutil.copy(WORKLOADS / "coloured_error.py", folder / f"{NASTY[:-6]}.py")
    done = run_autotune(folder, "search", f"{NASTY[:-6]}.py")
    assert done.returncode == WORKLOAD, done.stderr
    assert "ValueError: Ärger" in done.stderr
    assert not CONTROL.search(done.stderr)
    assert ";owned" not in done.stderr
    assert not list(tmp_path.rglob("owned"))
    assert nobody_is_left(tmp_path)


@covers("S16")
@pytest.mark.parametrize("name", [b"m\xff.py", b"x" * 300 + b".py"])
def test_a_model_that_no_file_can_be_named_after_is_refused(name, tmp_path):
    if b"\xff" in name:
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_text("")
    command = [sys.executable.encode(), b"-m", b"autotune", b"search", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == USAGE, done.stderr
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@covers("S16")
@pytest.mark.parametrize("flag", ["--space", "--warm-start", "--out"])
def test_a_path_that_is_too_long_is_refused_in_a_line(flag, tmp_path):
    done = told(tmp_path, "search", PLAIN, flag, "x" * 300)
    assert done.code == USAGE, done.err
    assert "Traceback" not in done.err
    assert "crash" not in done.err


@covers("S11")
def test_a_folder_that_cannot_be_written_is_refused_before_any_trial():
    done = run_autotune(Path("/sys"), "search", PLAIN)
    assert done.returncode == STORAGE
    assert re.search(r"studies.* cannot be used for the study: ", done.stderr)


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}
BARE = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "40", "CUDA_VISIBLE_DEVICES": ""}


@covers("P3", "P5", "P7", "P8")
@pytest.mark.parametrize(
    "environ",
    [
        {**ASCII, "HOME": None, "USER": None, "TERM": None},
        {**BARE, "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "HOME": "/proc/nowhere"},
    ],
    ids=["not UTF-8, no home", "Turkish, dumb, narrow, no GPU, home cannot be written"],
)
def test_a_model_is_looked_at_in_any_locale_home_and_terminal(environ, tmp_path):
    written(tmp_path, PLAIN.read_text(encoding="utf-8") + "# modèle \U0001f600\n", "mine.py")
    done = succeeded(run_with(environ, tmp_path, "settings", "mine.py"))
    signs_of_life = [line for line in done.stderr.splitlines() if line.startswith(b"  ... ")]
    assert done.stderr.splitlines() == signs_of_life
    text = done.stdout.decode("utf-8")
    assert "batch_size" in text
    on_cpu = "CUDA_VISIBLE_DEVICES" in environ or not torch.cuda.is_available()
    assert ("not varied: there is no accelerator to copy to" in " ".join(text.split())) == on_cpu
    assert not CONTROL.search(text)


@covers("X1")
@pytest.mark.parametrize(
    "study", ["../../x", "a/b", "C:\\x", "-rf", "n" * 300, "\U0001f600", "'--"]
)
def test_a_study_of_any_name_stays_in_its_folder_and_keeps_its_name(study, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    model = written(home, "# trains\n", "model.py")
    options = options_of(model, study=study, trials=2)
    options.study.folder.mkdir(parents=True)
    empty_database(options.study.folder / "study.db")
    events = events_of(options, ScriptedRunner())
    assert isinstance(events[-1], Answered)
    assert {path.name for path in tmp_path.iterdir()} == {"home"}
    assert {path.name for path in home.iterdir()} == {"model.py", "studies"}
    (folder,) = (home / "studies").iterdir()
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*-[0-9a-f]{8}", folder.name)
    assert optuna.get_all_study_names(f"sqlite:///{folder / 'study.db'}") == [study]


@covers("S5")
@pytest.mark.parametrize("is_full", [False, True])
def test_a_disk_that_runs_full_ends_the_search_with_what_is_free_and_keeps_its_trials(
    is_full, tmp_path
):
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        missing("`unshare --mount` as root of its own", "run in a container that may mount")
    empty_database(tmp_path / "study.db")
    shutil.copy(PLAIN, tmp_path / "mine.py")
    script = written(tmp_path, ON_A_SMALL_DISK, "script.py")
    mount = 'mount -t tmpfs -o size=2m none "$1" && cp "$2" "$1" && exec "$3" "$4" "$1" "$5"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    arguments = [disk, tmp_path / "study.db", sys.executable, script, "full" * is_full]
    path = os.pathsep.join(sys.path)
    done = completed(tmp_path, [*command, *arguments], PYTHONPATH=path)
    said = done.stdout.splitlines()
    if not is_full:
        assert said == ["answered", "5 trials, ok"], done.stderr
        return
    assert re.match(r"StorageError: .*(full|No space left).*free", said[0]), done.stdout
    assert said[1] == "3 trials, ok"


def can_mount(folder):
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


# Searches on a disk of its own, which someone else fills in the third trial after the baseline.
ON_A_SMALL_DISK = """
import sqlite3, sys
from pathlib import Path
import optuna
from autotune.values.errors import StorageError
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

disk = Path(sys.argv[1])

def filling(config, phase):
    if phase == "trial" and len(runner.batches("trial")) == 3 and sys.argv[2]:
        with (disk / "others").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
    return at(10 * batch_of(config))

runner = ScriptedRunner(filling)
try:
    events_of(options_in(disk), runner)
    print("answered")
except StorageError as error:
    print("StorageError:", str(error).replace("\\n", " "))
url = f"sqlite:///{disk / 'study.db'}"
told = optuna.load_study(study_name="scripted", storage=url).get_trials(
    states=[optuna.trial.TrialState.COMPLETE]
)
(sound,) = sqlite3.connect(disk / "study.db").execute("PRAGMA integrity_check").fetchone()
print(f"{len(told)} trials, {sound}")
"""


@covers("S17")
def test_a_link_in_place_of_the_answer_is_replaced_and_not_written_through(tmp_path):
    precious = written(tmp_path, "precious", "precious")
    options = unstored_in(tmp_path)
    options.study.out.symlink_to(precious)
    events_of(options, ScriptedRunner(lambda config, phase: at(10 * batch_of(config))))
    assert precious.read_text() == "precious"
    assert not options.study.out.is_symlink()
    assert options.study.out.read_text().startswith("# 16.00x faster")


@covers("X4")
@pytest.mark.parametrize("content", [None, "somebody's work"])
@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_a_template_is_never_written_through_a_link(flags, content, tmp_path):
    target = tmp_path / "elsewhere.py"
    if content is not None:
        target.write_text(content)
    (tmp_path / "model.py").symlink_to(target)
    done = told(tmp_path, "init", *flags)
    assert done.code == USAGE
    assert (target.read_text() if target.exists() else None) == content
    assert (tmp_path / "model.py").is_symlink()


@covers("X11")
@pytest.mark.parametrize(
    ("of_file", "of_folder", "warns"),
    [
        *((0o644, 0o755, False), (0o664, 0o775, False), (0o646, 0o755, True), (0o644, 0o757, True)),
        (0o644, 0o1777, False),
    ],
)
def test_a_model_that_everybody_may_change_is_warned_of_before_it_is_run(
    of_file, of_folder, warns, tmp_path, capsys
):
    folder = tmp_path / "shared"
    folder.mkdir()
    model = written(folder, "raise SystemExit\n", "model.py")
    model.chmod(of_file)
    folder.chmod(of_folder)
    options_of(model)
    said = capsys.readouterr().err
    assert said.startswith("warning: ") == warns
    assert ("can be written by every user of this machine; run `chmod o-w " in said) == warns


@covers("X11")
def test_a_model_of_another_user_is_warned_of(tmp_path, capsys, monkeypatch):
    model = written(tmp_path, "", "model.py")
    as_it_is = Path.stat

    def of_another(path, **options):
        found = list(as_it_is(path, **options))
        if path == model:
            found[stat.ST_UID] = 4321
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", of_another)
    options_of(model)
    assert "model.py belongs to another user (ID 4321)" in capsys.readouterr().err
