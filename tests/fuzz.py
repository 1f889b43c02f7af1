"""Fuzzes a reader of files, guided by which lines it reaches: `make fuzz READER=best.yaml`.

Arguments: a name of `readers.READERS`, then libFuzzer's own, such as -max_total_time=60. It ends
with a traceback and the input that led there, or when time is up. Needs `pip install atheris`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["autotune", "ruamel"]):
    from readers import READERS, sample_of


def main(name: str, *flags: str) -> None:
    """Fuzz the reader of this name, beginning with a valid file."""
    (reader,) = [reader for reader in READERS if reader.name == name]
    with tempfile.TemporaryDirectory(prefix="autotune-fuzz-") as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        (corpus / "sample").write_bytes(sample_of(reader, Path(folder)))
        atheris.Setup(
            [sys.argv[0], str(corpus), *flags],
            lambda content: reader.survives(content, Path(folder)),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
