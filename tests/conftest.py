"""Puts this folder on the import path, so that tests share its modules, and common fixtures."""

import shutil
import signal
import sys
from secrets import token_hex
from typing import Any

import single_threaded  # noqa: F401 (before numpy is imported)

# isort: split
import pytest
from hypothesis import settings

import covering
import durations
import forking
import leaks
import mysql_server as mariadb
import tiers
from autotune.commands import execute
from autotune.process.devices import device_locks
from autotune.process.runner import SubprocessRunner
from databases import empty_database, leave_writing_to_the_kernel
from factories import TINY_CONV, cpu_machine, narrowed, written
from hurried_runner import OneHost
from needs import installed, missing
from postgres import create_database, programs, running_server
from study_factories import NINE, opened, study_of

# `make test-long`: pytest --hypothesis-profile=long
settings.register_profile("long", max_examples=5_000, deadline=None)
settings.register_profile("short", max_examples=25, deadline=None)
settings.load_profile("short")


def pytest_configure(config: pytest.Config) -> None:
    """Let signals reach the programs under test, though a shell's job or nohup ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    leaks.begin()
    forking.begin(leaks.temporary() / "servers")
    leave_writing_to_the_kernel()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests their tiers, and in several processes the order in which they end soonest."""
    are_whole_files = not config.getoption("lf", False) and "::" not in "".join(config.args)
    tiers.mark(items, are_whole_files)
    covering.note(items)
    if hasattr(config, "workerinput"):
        durations.longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests that would wait for each other in one process."""
    return durations.scheduler(config, log)


def pytest_unconfigure() -> None:
    """Remove what was temporary."""
    leaks.end()


@pytest.fixture(autouse=True, scope="module")
def no_host_is_left():
    """Warm hosts of a module's runners end with the module."""
    before = leaks.traces()
    yield
    _refuse(leaks.left_since(before))


@pytest.fixture(autouse=True)
def new_interpreters(request, monkeypatch):
    """Processes of a test with the mark `fresh` are not forked by a server of this suite."""
    if request.node.get_closest_marker("fresh"):
        monkeypatch.delenv(forking.PLACE)


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """No test leaves processes, shared memory, temporary folders or locks behind."""
    before = leaks.traces()
    yield
    left = leaks.left_since(before, hosts_may_stay=True)
    if request.node.get_closest_marker("keeps_log"):
        kept = {name for name in left if name.startswith("autotune-")}
        leaks.clear(kept)
        left -= kept
    _refuse(left)


def _refuse(left: set[str]) -> None:
    leaks.clear(left)
    assert not left, f"left behind: {', '.join(sorted(left))}"


@pytest.fixture
def threads_of_the_machine(monkeypatch):
    """Processes that are started from now on compute with PyTorch's own number of threads."""
    monkeypatch.delenv("OMP_NUM_THREADS")


@pytest.fixture
def tiny_conv_path():
    """The model.py of a workload that trains in milliseconds."""
    return TINY_CONV


@pytest.fixture(scope="module")
def one_host(tmp_path_factory):
    """Children of commands in this process are all forked from one host, which builds nothing."""
    with (
        SubprocessRunner(tmp_path_factory.mktemp("host") / "inductor") as runner,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(execute, "SubprocessRunner", OneHost(runner))
        yield


@pytest.fixture
def url(tmp_path):
    """The URL of a database of its own."""
    empty_database(tmp_path / "study.db")
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture(scope="session")
def server():
    """The URL of a PostgreSQL server, without a database; where none is installed, a skip."""
    installed("psycopg")
    if programs() is None:
        missing("PostgreSQL", "apt-get install postgresql")
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_storage(server):
    """The URL of an empty database of its own on the server."""
    return create_database(server, f"test-{token_hex(4)}")


@pytest.fixture
def server_storage(postgres_storage):
    """The same, where one kind of server is enough."""
    return postgres_storage


@pytest.fixture(scope="session")
def mysql_server():
    """The URL of a MariaDB server, without a database; where none is installed, a skip."""
    installed("pymysql")
    if shutil.which(mariadb.PROGRAM) is None:
        missing("MariaDB", "apt-get install mariadb-server")
    with mariadb.running_server() as url:
        yield url


@pytest.fixture
def mysql_storage(mysql_server):
    """The URL of an empty database of its own on that server."""
    return mariadb.create_database(mysql_server, f"test-{token_hex(4)}")


@pytest.fixture(scope="module")
def devices_to_itself():
    """Tests that hold back trials on real cores would wait for each other without end."""
    with device_locks(["tests"]):
        yield


@pytest.fixture
def nine(tmp_path):
    """A search space of nine configurations."""
    return narrowed(written(tmp_path, NINE), cpu_machine(), {"batch_size": 16})


@pytest.fixture(params=["memory", "sqlite"])
def study(request, nine, url):
    """An empty study with random proposals, which would repeat themselves soon."""
    return study_of(nine) if request.param == "memory" else opened(url, nine)


@pytest.fixture
def restless():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
