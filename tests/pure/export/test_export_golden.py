"""Each form of two answers, whole, as it was when somebody last looked at it.

After a wanted change: `PYTHONPATH=.:tests python tests/pure/export/test_export_golden.py`, and look
at the difference before it is committed.
"""

from pathlib import Path

import pytest

from answers import ANSWERS
from autotune import __version__
from autotune.export import FORMATS, export

GOLDEN = Path(__file__).parents[2] / "exports"
ENDINGS = {"torchrun": "sh", "env": "sh", "json": "json", "python": "py.txt"}
CASES = [(answer, form) for answer in ANSWERS for form in FORMATS]


def golden(answer, form):
    return GOLDEN / answer / f"{form}.{ENDINGS.get(form, 'yaml')}"


def text_of(answer, form):
    text = export(ANSWERS[answer](), form).text
    return text.replace(f"autotune {__version__}", "autotune VERSION")


@pytest.mark.parametrize(("answer", "form"), CASES)
def test_a_form_is_what_it_was(answer, form):
    assert text_of(answer, form) == golden(answer, form).read_text(encoding="utf-8")


if __name__ == "__main__":
    for case in CASES:
        golden(*case).parent.mkdir(parents=True, exist_ok=True)
        golden(*case).write_text(text_of(*case), encoding="utf-8")
