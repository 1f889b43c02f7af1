"""Check that carried wheels suffice without a network: `python wheel_check.py .whl`.

The first check is by metadata. All that autotune and the wheels require, for Python 3.12 on Linux,
must be among the wheels or among the packages of the GPU machine. The second check runs if there is
a Python 3.12: a new virtual environment gets stand-ins for that machine's packages, except torch,
which the command line does not import. Then the wheels are installed as kit.py does, without
network, and the command line, a report and an Optuna study in SQLite are tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename
except ImportError:  # a plain Python has pip's copy alone
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
# Packages on the machine of studies/h200/; an empty version is not known.
THERE = {
    "torch": "2.11.0", "torchvision": "0.26.0", "triton": "3.6.0", "numpy": "2.5.2",
    "pandas": "", "scipy": "", "jinja2": "", "markupsafe": "", "pyyaml": "", "rich": "",
    "packaging": "", "tqdm": "", "pytest": "", "hypothesis": "", "nvidia-ml-py": "", "pillow": "",
}  # fmt: skip
# Packages to install for those of that machine, with their dependencies; torch is too large.
STAND_INS = ("numpy", "pandas", "scipy", "Jinja2", "PyYAML", "rich", "packaging", "tqdm")
LINUX_312 = {
    "python_version": "3.12", "python_full_version": "3.12.3", "sys_platform": "linux",
    "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
    "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": "",
}  # fmt: skip
STORES = (
    "import optuna, optuna_dashboard\noptuna.create_study(storage='sqlite:///study.db').ask()\n"
)


def main() -> None:
    """Print the findings; exit with 1 if something is missing or does not run."""
    wheels = sorted(Path(sys.argv[1]).resolve().glob("*.whl"))
    missing = list(lacking(wheels))
    for line in missing:
        print(f"missing: {line}")
    print(f"{len(wheels)} wheels, by metadata: {'not enough' if missing else 'enough'}")
    python = os.environ.get("PYTHON312") or shutil.which("python3.12")
    if python is None:
        print("no Python 3.12 here: nothing was run. Name one with PYTHON312.")
    failed = python is not None and not runs(python, wheels)
    sys.exit(1 if missing or failed else 0)


def lacking(wheels: list[Path]) -> Iterator[str]:
    """Yield requirements that neither a wheel nor the machine meets, with the package's name."""
    carried = {}
    for wheel in wheels:
        name, version, *_ = parse_wheel_filename(wheel.name)
        carried[str(name)] = str(version)
    versions = {**THERE, **carried}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"autotune": project["dependencies"]} | {w.name: requires(w) for w in wheels}
    for whose, lines in wanted.items():
        for requirement in map(Requirement, lines):
            if requirement.marker and not requirement.marker.evaluate(LINUX_312):
                continue
            found = versions.get(canonicalize_name(requirement.name))
            if found is None or (found and not requirement.specifier.contains(found)):
                yield f"{requirement} of {whose}, there is {found or 'none'}"


def requires(wheel: Path) -> list[str]:
    """Return the requirements in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        headers = Parser().parsestr(archive.read(name).decode())
    return headers.get_all("Requires-Dist") or []


def runs(python: str, wheels: list[Path]) -> bool:
    """Return True if autotune's command line runs in a clean environment with the wheels."""
    with tempfile.TemporaryDirectory(prefix="wheel-check-") as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        own, site = str(folder / "venv/bin/python"), str(folder / "site")
        pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--prefer-binary", *STAND_INS], check=True)
        offline = ["--no-index", "--no-deps", "--target", site]
        subprocess.run([*pip, *offline, *map(str, wheels)], check=True)
        answer = str(ROOT / "studies" / "digits_cnn" / "recorded_best.yaml")
        commands = [
            ["-m", "autotune", "--help"],
            ["-m", "autotune", "spaces"],
            ["-m", "autotune", "report", answer],
            ["-c", STORES],
        ]
        done = [tried([own, *words], folder, site) for words in commands]
    print(f"in a clean environment: {sum(done)} of {len(done)} commands ran")
    return all(done)


def tried(command: list[str], folder: Path, site: str) -> bool:
    """Return True if a command ends with 0; else print its last words."""
    environ = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{' '.join(command[1:])[:80]}: exit {done.returncode}\n{done.stderr[-800:]}")
    return done.returncode == 0


if __name__ == "__main__":
    main()
