"""Whatever stands in a file, a reader takes it or says what is wrong: no traceback, little time."""

import gc
import lzma
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covering import covers
from readers import PACKED, READERS, sample_of

# Times the yardstick, about a second on a machine of 2026.
MOST_TIMES = 50.0
MOST_BYTES = 50_000_000
# The folder is only written to.
ANY = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
VALUES = [b"", b"null", b"-1", b"0", b"1e999", b"NaN", b".inf", b"true", b"[]", b"{}", b"9" * 5000]
MARKS = [
    *(b"[[[[", b"{a: ", b"&a ", b"*a", b"<<: ", b"---\n", b"!!python/object/apply:os.system [id]"),
]
SIGNS = [b'"', b"'", b"\t", b"\n", b"\r", b"\0", b"\x1b", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0"]
WORDS = st.sampled_from(VALUES) | st.sampled_from(MARKS) | st.sampled_from(SIGNS)
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 40), WORDS | st.binary(max_size=8)), max_size=6
)

each = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


def edited(content, edits):
    """Some bytes replaced by others, at places given as shares of the whole."""
    for place, length, replacement in edits:
        start = int(place * len(content))
        content = content[:start] + replacement + content[start + length :]
    return content


@each
def test_the_samples_are_valid(reader, tmp_path):
    assert reader.survives(sample_of(reader, tmp_path), tmp_path)


@covers("C14")
@each
@ANY
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode()))
def test_any_bytes_are_read_or_refused(reader, tmp_path, content):
    reader.survives(content, tmp_path)


@covers("C14")
@each
@ANY
@given(edits=EDITS)
def test_a_file_that_was_damaged_is_read_or_refused(reader, tmp_path, edits):
    reader.survives(edited(sample_of(reader, tmp_path), edits), tmp_path)


LAUGHS = "a: &a [x]\n" + "".join(f"b{i}: &b{i} [{'*a, ' * 50}]\n" for i in range(200))
COSTLY = {
    "deep lists": b"a: " + b"[" * 60_000,
    "deep mappings": b"{a: " * 15_000,
    "deep blocks": b"- " * 30_000,
    "deep JSON": b'{"a":' * 100_000,
    "deep but whole": b'{"a": ' + b"[" * 400_000 + b"]" * 400_000 + b"}\n",
    "a billion laughs": LAUGHS.encode(),
    "many items": b"batch_size: [" + b"1," * 31_000 + b"1]",
    "many keys": b"".join(b"num_worker%d: 1\n" % n for n in range(3300)),
    "many unknown keys in config": b"autotune: 1\nconfig:\n"
    + b"".join(b"  batch_siz%d: 1\n" % n for n in range(1900)),
    "many faults": b"num_workers: [" + b"-1, " * 1900 + b"]",
    "many of the same": b"num_workers: [" + b"1, " * 1900 + b"]",
    "a huge integer": b"trials: " + b"9" * 60_000,
    "a large integer": b"batch_size: {low: 1, high: " + b"9" * 390 + b", log2: true}",
    "a long key": b"k" * 60_000 + b": 1",
    "a long line": b"about: " + b"x" * 56_000,
    "long words": b"about: " + b"x " * 28_000,
    "a long comment": b"# " + b"x" * 60_000 + b"\ntrials: 1",
    "many comments": b"#\n" * 30_000 + b"trials: 1",
    "blank lines": b"\n" * 60_000 + b"trials: 1",
    "a long quoted text": b"about: '" + b"x" * 56_000 + b"'",
    "a long text block": b"about: |\n" + b" x\n" * 18_000,
    "a long anchor": b"about: &" + b"x" * 56_000 + b" 1",
    "escapes": b'about: "' + b"\\x41" * 14_000 + b'"',
    "questions": b"? a\n" * 15_000,
    "NUL": b"trials: 1\0" * 6000,
    "a byte order mark": b"\xef\xbb\xbf" + b"trials: 1\n" * 2,
    "UTF-16": ("trials: 1\n" * 100).encode("utf-16"),
    "50 MB": b"trials: 1\n" * 5_000_000,
    "too many JSON lists": b"[" + b"[]," * 340_000 + b"[]]\n",
    "JSON lists": b"[" + b"[]," * 59_999 + b"[]]\n",
    "JSON objects": b'{"kind": [' + b"{}," * 59_999 + b"{}]}\n",
    "JSON numbers": b"[" + b"1.5," * 59_999 + b"1]\n",
    "a JSON integer": b'{"seed": ' + b"9" * 1_000_000 + b"}\n",
    "JSON with many unknown keys": b'{"kind": "crashed", "detail": "x", '
    + b", ".join(b'"k%d": 1' % n for n in range(59_900))
    + b"}\n",
    "packed lines": PACKED,
}


def yardstick():
    """Seconds of CPU time that this machine takes now for a fixed piece of work."""
    start = time.process_time()
    sum(number * number for number in range(500_000))
    return time.process_time() - start


@pytest.fixture
def costs(tmp_path):
    """Time, as a multiple of the yardstick's, and bytes that reading takes, one after the other."""

    def measure(reader, content):
        gc.disable()  # a collection goes through all that other tests left alive
        before = yardstick()
        start = time.process_time()
        reader.survives(content, tmp_path)
        times = (time.process_time() - start) / max(before, yardstick())
        gc.enable()
        tracemalloc.start()
        try:
            kept = tracemalloc.get_traced_memory()[0]
            reader.survives(content, tmp_path)
            return times, tracemalloc.get_traced_memory()[1] - kept
        finally:
            tracemalloc.stop()

    return measure


OF_JSON = [name for name in COSTLY if "JSON" in name or name == "deep but whole"]
COSTLY_FOR = {
    # Both kinds of YAML go through one parser, and then to classes of their own.
    "space.yaml": [name for name in COSTLY if name not in OF_JSON],
    "best.yaml": ["many keys", "many unknown keys in config", "a huge integer", "a long line"],
    "job.json": [*OF_JSON, "50 MB", "a long line"],
    "outcome.json": OF_JSON,
    "table.jsonl": [*OF_JSON, "50 MB"],
    "table.jsonl.xz": ["packed lines", "50 MB", "JSON lists"],
}


# An outcome is read alike whatever it is called.
@covers("C6", "C7")
@pytest.mark.parametrize(
    ("reader", "name"),
    [
        pytest.param(reader, name, id=f"{reader.name}, {name}")
        for reader in READERS
        for name in COSTLY_FOR.get(reader.name, ())
    ],
)
def test_no_file_takes_long_or_much_memory(reader, name, costs):
    content = COSTLY[name]
    if reader.name.endswith(".xz") and content is not PACKED:
        content = lzma.compress(content, preset=0)
    times, most_bytes = costs(reader, content)
    assert times < MOST_TIMES
    assert most_bytes < MOST_BYTES
