"""Count the files of autotune of which a search runs a function, in the parent and its children.

    python -m benchmarks.main_path MODEL [--trials 3] [-- ARGUMENTS]

A profiler hook in every process notes the files. What only runs when a module is imported, such as
the body of a class, does not count. The space is `quick`, since compiling under a hook takes long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "autotune"
HOOK = """
import os, sys, threading
_own, _seen = {package!r} + "/", set()
def _note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(_own) and code.co_flags & 1:
        if (os.getpid(), code.co_filename) not in _seen:
            _seen.add((os.getpid(), code.co_filename))
            with open(f"{folder}/{{os.getpid()}}", "a") as file:
                file.write(code.co_filename + chr(10))
sys.setprofile(_note)
threading.setprofile(_note)
"""


def main() -> None:
    """Search a workload and print the number of files by folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--trials", default="3")
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "seen").mkdir()
        hook = HOOK.format(package=str(PACKAGE), folder=str(folder / "seen"))
        (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
        command = [sys.executable, "-m", "autotune", "search", str(given.model.resolve())]
        command += ["--space", "quick", "--trials", given.trials]
        command += ["--", *given.arguments] if given.arguments else []
        paths = os.pathsep.join([name, str(PACKAGE.parent)])
        subprocess.run(command, cwd=name, env={**os.environ, "PYTHONPATH": paths}, check=False)
        lines = [file.read_text(encoding="utf-8") for file in (folder / "seen").iterdir()]
    files = {Path(line).relative_to(PACKAGE) for text in lines for line in text.splitlines()}
    for part, count in sorted(Counter(file.parts[0] for file in files).items()):
        print(f"{count:4} {part}")
    print(f"{len(files):4} files in all")


if __name__ == "__main__":
    main()
