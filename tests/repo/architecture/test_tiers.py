"""Each entry of tests/tiers.txt names something that is there."""

from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_the_file_of_every_entry_is_there():
    """`tiers.mark` refuses an entry that names no test of its file."""
    entries = (TESTS / "tiers.txt").read_text(encoding="utf-8").splitlines()
    listed = [entry for entry in entries if entry and not entry.startswith("[")]
    assert len(listed) > 50
    assert [entry for entry in listed if not (TESTS / entry.partition("::")[0]).exists()] == []


def test_every_test_lies_in_a_folder_that_has_a_tier():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert folders <= {"gpu", "pure", "real", "repo", "scripted"}
