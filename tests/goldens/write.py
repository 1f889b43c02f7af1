"""Writes the goldens: `python tests/goldens/write.py`. See README.md beside it."""

import argparse
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PARTS = ("commands", "stored", "studies", "traces")
TEXTS = HERE / "texts"

Texts = Iterator[tuple[str, Iterable[str]]]


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--into", type=Path, help="a folder for plain texts")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="of the traces")
    parser.add_argument("--studies", action="store_true", help="write the kept studies first")
    arguments = parser.parse_args()
    _prepare()
    if arguments.studies:
        from goldens.studies import CASES, write_study

        for name in CASES:
            write_study(name)
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    for part in arguments.parts:
        for name, lines in _TEXTS[part](seeds):
            text = "".join(f"{line}\n" for line in lines)
            if arguments.into is None:
                _keep(name, text)
            else:
                arguments.into.mkdir(parents=True, exist_ok=True)
                (arguments.into / f"{name}.txt").write_text(text, encoding="utf-8")


def golden(name: str) -> str:
    """Return a golden's text as it was written."""
    with lzma.open(TEXTS / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
        return file.read()


def _prepare() -> None:
    """Let this process find this checkout's modules, and make time and rounding the same for all.

    To be called before numpy and autotune are imported.
    """
    sys.path[:0] = map(str, (ROOT, ROOT / "tests"))
    os.environ["PYTHONPATH"] = str(ROOT)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from goldens import clock, ties

    clock.install()
    ties.install()


def _commands(_: list[int]) -> Texts:
    from goldens.commands import command_lines

    yield "commands", command_lines()


def _stored(_: list[int]) -> Texts:
    from goldens.studies import stored

    yield "stored", stored()


def _studies(_: list[int]) -> Texts:
    from goldens.studies import CASES, reported, resumed

    for name in CASES:
        yield f"{name}-resumed", resumed(name)
        yield f"{name}-reported", reported(name)


def _traces(seeds: list[int]) -> Texts:
    from goldens.replays import TABLES, trace

    for table in TABLES:
        yield table, (line for seed in seeds for line in trace(table, seed))


_TEXTS: dict[str, Callable[[list[int]], Texts]] = {
    "commands": _commands,
    "stored": _stored,
    "studies": _studies,
    "traces": _traces,
}


def _keep(name: str, text: str) -> None:
    """Write a golden, unless that is what it says already."""
    path = TEXTS / f"{name}.txt.xz"
    TEXTS.mkdir(exist_ok=True)
    if not path.exists() or golden(name) != text:
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
