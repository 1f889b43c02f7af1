"""The answer of a search is on stdout, its progress on stderr, however it is shown."""

import json
import shutil

import pytest

from children import WORKLOADS
from command_line import command
from factories import written
from scripted_runner import ScriptedRunner, at, batch_of

FASTER, KEPT = "2.00x faster than your settings", "Keep your settings"


@pytest.fixture
def search(tmp_path, monkeypatch):
    """`autotune search` of two batch sizes; `rates` has the samples/s of each."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(WORKLOADS / "plain.py", "model.py")
    written(tmp_path, "batch_size: [8, 64]\n", "space.yaml")

    def searched(faster, *words):
        runner = ScriptedRunner(
            lambda config, _: at(100 if batch_of(config) == 8 else 100 * faster)
        )
        monkeypatch.setattr("autotune.commands.execute.SubprocessRunner", runner)
        return command("search", "model.py", "--space", "space.yaml", "--trials", "2", *words)

    return searched


@pytest.mark.parametrize("mode", ["auto", "rich", "plain", "none"])
@pytest.mark.parametrize(("faster", "headline"), [(2.0, FASTER), (0.5, KEPT)])
def test_every_display_leaves_the_answer_to_stdout(search, mode, faster, headline):
    done = search(faster, "--progress", mode)
    assert done.code == 0, done.err
    assert done.out.startswith(headline)
    assert "written to" in done.out
    assert headline not in done.err
    assert ("best so far" in done.err) == (mode != "none")
    assert "best so far" not in done.out


@pytest.mark.parametrize("mode", ["plain", "none"])
def test_json_alone_is_on_stdout_where_it_was_asked_for(search, mode):
    done = search(2.0, "--json", "--progress", mode)
    told = json.loads(done.out)
    assert told["answer"] == "faster"
    assert told["seconds"] >= 0
    assert (FASTER in done.err) == (mode != "none")
