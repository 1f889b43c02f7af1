"""A warm host imports the packages of a script before it, whichever of its files names them."""

import pytest

from autotune.configuration.job import Job, Probe
from autotune.configuration.script import Script
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Probed
from factories import written

SCRIPT = """
import sys
print("at first", "installed_here" in sys.modules)
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
    pass
"""


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Run the script; return what it printed first, and its launch."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))

    def run(helper=HELPER, package=""):
        place = tmp_path / "site-packages" / "installed_here"
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(package)
        project = tmp_path / "project"
        script = written(project, SCRIPT, "train.py")
        written(project, helper, "helper.py")
        call = Script((), metric="loss ([0-9.]+)")
        with SubprocessRunner(tmp_path / "inductor") as runner:
            job = Job(Probe(8, (0,)), "cpu", str(script), script=call, host="search")
            folder = tmp_path / "trial"
            assert isinstance(runner.run(job, folder), Probed)
        return (folder / "stdout.log").read_text().splitlines()[0], (folder / "launch").read_text()

    return run


def test_it_is_there_before_the_script_begins(runs):
    assert runs() == ("at first True", "forked\n")


def test_a_file_of_the_user_that_sets_variables_does_so_before(runs):
    assert runs(f"import os; os.environ['X'] = 'y'{HELPER}") == ("at first False", "forked\n")


def test_a_package_that_cannot_be_shared_by_forks_is_left_to_each(runs):
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    first, launch = runs(package=thread)
    assert first == "at first False"
    assert launch.startswith("fresh interpreter: an import left a thread running")
