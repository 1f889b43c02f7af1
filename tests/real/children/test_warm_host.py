"""A child is forked where that is as good as a fresh interpreter.

Jobs that import and build in their own process; test_shared_dataset.py has hosts that build.
"""

from ast import literal_eval

import psutil
import pytest

from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Lost, Measured, UserError
from children import WORKLOADS, ended_as, job_for, measured, nobody_is_left
from factories import written

pytestmark = pytest.mark.fresh
PLAIN = WORKLOADS / "plain.py"


@pytest.fixture
def runner(tmp_path):
    """A runner of its own, for tests after which it forks no more."""
    with SubprocessRunner(tmp_path / "inductor") as runner:
        yield runner


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A runner that goes on forking from one host."""
    with SubprocessRunner(tmp_path_factory.mktemp("warm") / "inductor") as runner:
        yield runner


FORKED = "forked; dataset built again: --fresh-data\n"


def launch_of(folder):
    return (folder / "launch").read_text()


def says(source, folder, runner, host="search"):
    """Return what a workload raises, and how its process was launched."""
    job = job_for(written(folder, source, "model.py"), host=host)
    outcome = ended_as(UserError, runner.run(job, folder / "trial"))
    return outcome.detail, launch_of(folder / "trial")


def test_children_are_forked_from_one_host_which_ends_with_the_runner(tmp_path):
    seconds = []
    with SubprocessRunner(tmp_path / "inductor") as runner:
        for number in range(2):
            run = measured(runner.run(job_for(PLAIN), tmp_path / str(number)))
            assert launch_of(tmp_path / str(number)) == FORKED
            seconds.append(run.start_seconds)
    assert seconds[1] < seconds[0] / 2, "the first one waits until torch is imported"
    assert nobody_is_left(tmp_path)


def test_libraries_are_imported_before_the_fork_and_the_users_own_modules_after(warm, tmp_path):
    written(tmp_path, "import os\nLOADED_IN = os.getpid()\n", "own.py")
    source = (
        "import os, sys\n"
        "had_library = 'sklearn.datasets' in sys.modules\n"
        "from sklearn.datasets import load_digits\n"
        "import own\n"
        "raise ValueError(f'{had_library} {own.LOADED_IN == os.getpid()}')\n"
    )
    assert says(source, tmp_path, warm) == ("ValueError: True True", FORKED)


def test_nothing_is_imported_early_by_a_file_that_sets_the_environment(runner, tmp_path):
    source = (
        "import os, sys\n"
        "os.environ['SKLEARN_SKIP'] = '1'\n"
        "early = 'sklearn.datasets' in sys.modules\n"
        "from sklearn.datasets import load_digits\n"
        "raise ValueError(early)\n"
    )
    assert says(source, tmp_path, runner) == ("ValueError: False", FORKED)


def test_a_module_named_as_one_of_others_is_still_the_users(runner, tmp_path):
    written(tmp_path, "MINE = True\n", "sympy.py")
    source = "import sympy\nraise ValueError(sympy.MINE)\n"
    detail, launch = says(source, tmp_path, runner)
    assert launch == "fresh interpreter: sympy is the name of another module, too\n"
    assert detail == "ValueError: True"


def test_a_library_that_leaves_threads_running_prevents_forks(runner, tmp_path, monkeypatch):
    library = "import threading\nthreading.Timer(600, print).start()\n"
    written(tmp_path / "site-packages", library, "starts_thread.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    source = "import starts_thread\n" + PLAIN.read_text()
    measured(runner.run(job_for(written(tmp_path, source, "model.py")), tmp_path / "trial"))
    reason = "fresh interpreter: an import left a thread running: "
    assert launch_of(tmp_path / "trial").startswith(reason)


def test_a_job_that_asks_for_it_gets_a_fresh_interpreter(warm, tmp_path):
    job = job_for(PLAIN, host=None)
    assert isinstance(warm.run(job, tmp_path / "trial"), Measured)
    assert launch_of(tmp_path / "trial") == "fresh interpreter: asked for\n"


def test_jobs_that_name_another_host_get_a_new_one(runner, tmp_path):
    source = "import os\nraise ValueError(os.getppid())\n"
    before = len(psutil.Process().children())
    hosts = [says(source, tmp_path, runner, host)[0] for host in ("a", "a", "b")]
    assert [hosts.index(host) for host in hosts] == [0, 0, 2]
    assert len(psutil.Process().children()) == before + 1


def test_the_last_environment_has_a_host_of_its_own_beside_the_plain_one(runner, tmp_path):
    source = "import os\nraise ValueError(os.environ.get('OMP_WAIT_POLICY'), os.getppid())\n"
    model = written(tmp_path, source, "model.py")
    before = len(psutil.Process().children())
    policies = (None, "active", None, "active", "passive", "active", None)
    found = []
    for policy in policies:
        job = job_for(model, {"env.OMP_WAIT_POLICY": policy})
        outcome = ended_as(UserError, runner.run(job, tmp_path / "trial"))
        found.append(literal_eval(outcome.detail.removeprefix("ValueError: ")))
    assert [seen for seen, _ in found] == list(policies)
    assert [found.index(one) for one in found] == [0, 1, 0, 1, 4, 5, 0]
    assert len(psutil.Process().children()) == before + 2


def test_a_process_without_a_host_has_the_memory_of_hosts_with_variables(runner, tmp_path):
    before = len(psutil.Process().children())
    for number, policy in enumerate((None, "active")):
        runner.run(job_for(PLAIN, {"env.OMP_WAIT_POLICY": policy}), tmp_path / str(number))
    assert len(psutil.Process().children()) == before + 2
    runner.run(job_for(PLAIN, {"env.OMP_WAIT_POLICY": "active"}, host=None), tmp_path / "round")
    assert len(psutil.Process().children()) == before + 1


def test_the_thread_of_a_jemalloc_that_was_asked_for_prevents_forks(runner, tmp_path):
    settings = {"cpu_allocator": "jemalloc", "env.MALLOC_CONF": "background_thread:true"}
    measured(runner.run(job_for(PLAIN, settings), tmp_path / "trial"))
    assert "left a thread running: jemalloc_bg_thd" in launch_of(tmp_path / "trial")


def test_a_killed_host_of_one_environment_leaves_that_of_the_other(runner, tmp_path):
    source = "import os\nraise ValueError(os.getppid())\n"
    first, _ = says(source, tmp_path, runner)
    killer = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n"
    settings = {"env.OMP_WAIT_POLICY": "active"}
    job = job_for(written(tmp_path, killer, "model.py"), settings)
    assert isinstance(runner.run(job, tmp_path / "killed"), Lost)
    assert isinstance(runner.run(job_for(PLAIN, settings), tmp_path / "again"), Measured)
    assert launch_of(tmp_path / "again").startswith("forked with OMP_WAIT_POLICY")
    assert says(source, tmp_path, runner)[0] == first


@pytest.mark.parametrize("number", ["random.random()", "numpy.random.rand()"])
def test_random_numbers_differ_from_fork_to_fork(warm, tmp_path, number):
    source = f"import random\nimport numpy\nraise ValueError({number})\n"
    first, _ = says(source, tmp_path, warm)
    second, _ = says(source, tmp_path, warm)
    assert first != second


def test_a_compiled_model_trains_in_a_fork(warm, tmp_path):
    job = job_for(PLAIN, settings={"compile_mode": "default"})
    run = measured(warm.run(job, tmp_path / "trial"))
    assert run.compile_seconds > 0


def test_the_memory_of_a_fork_counts_what_the_host_holds_for_it(runner, tmp_path):
    jobs = [job_for(PLAIN, host=host) for host in ("search", None)]
    outcomes = [runner.run(job, tmp_path / "trial") for job in jobs]
    peaks = [outcome.measurement.peak_memory_bytes for outcome in outcomes]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.15)
