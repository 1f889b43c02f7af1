"""A package that is installed from a wheel works without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from children import completed, succeeded
from factories import best_config

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel's content, built from this checkout, as pip would lay it out."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("autotune-*.whl")
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=120)
    return site


def run(installed, folder, *arguments):
    """The installed command line, in a folder where there is no checkout."""
    code = (
        "import autotune, autotune.cli\n"
        f"assert autotune.__file__.startswith({str(installed)!r}), autotune.__file__\n"
        "autotune.cli.main()"
    )
    return completed(folder, [sys.executable, "-c", code, *arguments], PYTHONPATH=str(installed))


def test_spaces_presets_and_templates_are_inside_the_wheel(installed, tmp_path):
    listed = run(installed, tmp_path, "spaces").stdout
    assert all(name in listed for name in ("default", "quick", "cpu", "cuda", "loader"))
    (tmp_path / "train.py").write_text("")
    said = run(installed, tmp_path, "search", "--preset", "other", "train.py").stderr
    assert "--preset 'other' is not one of hf, lightning, timm." in said
    assert run(installed, tmp_path, "init").returncode == 0
    planned = run(installed, tmp_path, "search", "model.py", "--space", "quick", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "search space quick" in planned.stderr
    config = TrainingConfig.of({"batch_size": 16})
    write_best(best_config(config.replace(batch_size=64), config), tmp_path / "best.yaml")
    succeeded(run(installed, tmp_path, "report", "best.yaml", "--html", "report.html"))
    assert "1.50" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_wheel_holds_the_package_and_nothing_of_the_tests(installed):
    (wheel,) = installed.parent.glob("*.whl")
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert names == {"autotune", f"autotune-{wheel.name.split('-')[1]}.dist-info"}
