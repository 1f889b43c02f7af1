"""A warm host imports what the observed run of a script has imported, wherever that was named."""

import pytest

from autotune.configuration.job import Job, Observe, Probe
from autotune.configuration.script import Script
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Observed, Probed
from factories import written

SCRIPT = """
import sys
print("at first", "installed_here" in sys.modules, "installed_here.late" in sys.modules)
import torch
import helper
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
helper.build()
for _ in range(2000):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
print("loss 0.5")
"""
HELPER = """
import installed_here
def build():
    import installed_here.late
"""


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Observe the script, then run it again; return what it printed first, and its launch."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))

    def run(helper=HELPER, package="", shares=True):
        place = tmp_path / "site-packages" / "installed_here"
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(package)
        (place / "late.py").write_text("")
        (project := tmp_path / "project").mkdir()
        script = written(project, SCRIPT, "train.py")
        written(project, helper, "helper.py")
        call = Script((), metric="loss ([0-9.]+)")
        with SubprocessRunner(tmp_path / "inductor") as runner:
            observe = Observe(shares_packages=shares)
            for task, expected in ((observe, Observed), (Probe(8, (0,)), Probed)):
                job = Job(task, "cpu", str(script), script=call, host="search")
                folder = tmp_path / task.kind
                assert isinstance(runner.run(job, folder), expected)
        return (folder / "stdout.log").read_text().splitlines()[0], (folder / "launch").read_text()

    return run


def test_it_is_there_before_the_script_of_a_later_process_begins(runs):
    assert runs() == ("at first True True", "forked\n")


def test_a_file_of_the_user_that_sets_variables_does_so_before(runs):
    assert runs(f"import os; os.environ['X'] = 'y'{HELPER}") == ("at first False False", "forked\n")


def test_the_time_of_a_run_has_its_imports(runs):
    assert runs(shares=False) == ("at first False False", "forked\n")


def test_a_package_that_cannot_be_shared_by_forks_is_left_to_each(runs):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    assert runs(package=thread) == ("at first False False", "forked\n")
