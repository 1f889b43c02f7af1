"""The core runs without the packages of the extras, and a command that needs one names it."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from autotune.process.common.interpreter import _REQUIRED
from children import HURRIED, WORKLOADS, completed, succeeded
from stored_study import answered

ROOT = Path(__file__).parents[3]
OPTIONAL = ("optuna_dashboard", "psycopg", "pymysql", "pynvml", "scipy")
SPACE = "num_workers: [0, 1]\n"  # exact, so that no accuracy is probed
USAGE = 2


def without_extras(folder, *words):
    """A finished Python program for which, and for whose children, no extra is installed."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    hide = f"import sys\nsys.modules.update(dict.fromkeys({OPTIONAL!r}))\n"
    (site / "sitecustomize.py").write_text(hide)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return completed(folder, [sys.executable, *words], PYTHONPATH=path)


def autotune(folder, *words):
    return without_extras(folder, "-m", "autotune", *words)


@pytest.mark.parametrize(
    ("words", "needed_by", "distribution", "required"),
    [
        ("dashboard {url}", "autotune dashboard", "optuna-dashboard", "optuna-dashboard"),
        ("search model.py --sampler GPSampler", "--sampler GPSampler", "scipy", "scipy"),
        ("search model.py --sampler QMCSampler", "--sampler QMCSampler", "scipy", "scipy"),
        *(
            (words, "--storage postgresql://host/database", "psycopg", "psycopg[binary]")
            for words in (
                "search model.py --storage postgresql://host/database",
                "report postgresql://host/database",
                "worker name --model model.py --storage postgresql://host/database",
            )
        ),
        ("report mysql://host/database", "--storage mysql://host/database", "pymysql", "pymysql"),
    ],
)
def test_a_command_names_what_it_lacks_and_how_to_get_it(
    url, tmp_path, words, needed_by, distribution, required
):
    answered(url)
    (tmp_path / "model.py").write_bytes((WORKLOADS / "plain.py").read_bytes())
    done = autotune(tmp_path, *words.format(url=url).split())
    how = f"{sys.executable} -m pip install '{required}'"
    says = f"{needed_by} needs the package {distribution}: {how}"
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", f"autotune: {says}\n")
    assert not (tmp_path / "studies").exists()


@pytest.mark.long
def test_a_search_and_its_reports_need_no_extra(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "model.py").write_bytes((WORKLOADS / "plain.py").read_bytes())
    flags = ["--space", "space.yaml", "--trials", "2", "--study", "own"]
    succeeded(without_extras(tmp_path, HURRIED, "search", "model.py", *flags))
    report = autotune(tmp_path, "report", "own", "--html", "own.html", "--json", "own.json")
    assert report.returncode == 0, report.stderr
    table = autotune(tmp_path, "report", "own", "--csv", "-")
    assert len(table.stdout.splitlines()) == 3, "a line of names and two trials"
    succeeded(autotune(tmp_path, "export", "studies/own/best.yaml", "--format", "python"))


def test_what_is_named_is_what_installs_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(_REQUIRED) == set(OPTIONAL)
    (everything,) = extras.pop("all")
    required = [one.partition(">")[0] for extra in extras.values() for one in extra]
    assert set(_REQUIRED.values()) == {*required} - {"torch"}
    assert everything == f"{project['name']}[{','.join(sorted(set(extras) - {'torch'}))}]"
