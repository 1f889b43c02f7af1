"""Names that --devices takes and refuses."""

import pytest

from autotune.process.devices import devices_of
from autotune.values.errors import UsageError


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cuda:0,cuda:0", "two trials at once"),
        ("cuda:0,cpu:0", "several kinds"),
        ("cpu:0,cpu:4000", "may not use"),
        ("cpu:x", "is no device"),
        ("", "is no device"),
    ],
)
def test_devices_that_make_no_sense_are_refused(text, fault):
    with pytest.raises(UsageError, match=fault):
        devices_of(text)
