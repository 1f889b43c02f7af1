"""Nobody waits in silence: commands other than a search say that they still work."""

import tempfile
import time
from functools import partial

import pytest

from autotune.commands import search, worker
from autotune.console.progress import Waiting
from autotune.context.options import SearchOptions
from autotune.searching.run.events import PhaseStarted
from autotune.values.errors import NotSearchedEnoughError
from children import WORKLOADS
from command_line import command
from tiers import late

PLAIN = WORKLOADS / "plain.py"
SLOW_IMPORT = "import time\ntime.sleep(600)\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch, tmp_path):
    """A fiftieth of a second is long, and what stays on the disk stays in the test's folder."""
    monkeypatch.setattr("autotune.console.progress.Waiting", partial(Waiting, every=0.02))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def options_of(folder, model=PLAIN, **changes):
    kept = {"study": "a", "storage": None, "folder": folder, "out": folder / "table.jsonl"}
    return SearchOptions.of(model_path=model, device="cpu", **{**kept, **changes})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        late(["doctor"], "inspecting the machine"),
        late(["settings", PLAIN], "inspecting the machine and the file"),
        (["search", PLAIN, "--dry-run"], "inspecting the machine and the file"),
        late(["profile", PLAIN], "the profile"),
    ],
    ids=["machine", "file", "plan", "profile"],
)
@pytest.mark.usefixtures("one_host")
def test_a_command_that_takes_long_says_so(words, said):
    done = command(*words, "--device", "cpu")
    assert done.code == 0, done.err
    assert f"  ... {said}, " in done.err


def test_a_worker_says_what_takes_so_long_unless_it_was_told_to_be_silent(monkeypatch):
    def join(*_):
        time.sleep(0.5)
        yield PhaseStarted("search", "16 trials", None)
        time.sleep(0.5)

    monkeypatch.setattr(worker, "join", join)
    words = ["worker", "a", "--storage", "postgresql://db/all", "--model", PLAIN, "--device", "cpu"]
    said = command(*words).err
    assert said.index("... inspecting the machine and the file") < said.index("16 trials")
    assert said.index("16 trials") < said.index("... search, ")
    assert command(*words, "-q").err == ""


def test_a_dry_run_keeps_to_the_time_budget(tmp_path):
    model = tmp_path / "model.py"
    model.write_text(SLOW_IMPORT)
    with pytest.raises(NotSearchedEnoughError, match="took the whole time budget"):
        search.show_plan(options_of(tmp_path, model, time_budget_seconds=2.0))
