"""Details of a finished trial: the facts besides its configuration and its verdict.

They are stored as attributes of the trial, in its database and in the journal. No other module
spells their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache, cached_property
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from autotune.values.measurement import Measurement
from autotune.values.statistics import Interval
from autotune.values.strict_json import fault_of

CONFIG, VALUE, REASON = "config", "value", "reason"
"""Attributes of a trial: its configuration, and the value and the reason of its verdict."""
TRAINING_EQUIVALENT = "training_equivalent"
"""Attribute of a trial that names the trials of equivalent training."""
_KEYS = {"stored_measurement": "measurement"}
# JSON has lists in the place of tuples.
_FROM_LIST = Field(strict=False)


@checked(frozen=True, config=ConfigDict(strict=True))
class TrialDetails:
    """Facts about a finished trial. None where a fact is unknown, or a trial was not timed."""

    outcome: str | None = None
    """Kind of the trial's outcome, such as measured or out_of_memory."""
    seconds: float | None = None
    """Seconds of the whole trial, its accuracy probes included; of the baseline, those of all its
    processes."""
    foreseen: bool = False
    """True if the trial was not run, because the memory prediction exceeds the limit."""
    not_applied: str | None = None
    """Knob whose value did not take effect."""
    samples_per_second: float | None = None
    """Throughput as measured, not corrected for drift."""
    samples_per_second_ci95: Annotated[Interval | None, _FROM_LIST] = None
    """95 % interval of `samples_per_second`."""
    tokens_per_second: float | None = None
    """The same throughput in tokens; None where they are not counted."""
    joules_per_sample: float | None = None
    """Energy of a sample; None where nothing tells."""
    peak_memory_bytes: int | None = None
    """Peak memory in bytes."""
    compile_seconds: float | None = None
    """Seconds that torch.compile reports as its own."""
    one_time_seconds: float | None = None
    """Seconds of the first steps beyond the steady state, such as compilation."""
    fixed_seconds: float | None = None
    """Seconds that a run pays once: start, building, compilation, warm-up."""
    process_seconds: float | None = None
    """Seconds from the start of the process to the end of its last block."""
    wait_share: float | None = None
    """Share of the timed seconds in which training waited for data, 0 to 1."""
    machine_speed: float | None = None
    """Speed of the machine relative to the start of the search."""
    disturbed_blocks: int | None = None
    """Number of disturbed blocks behind `samples_per_second`."""
    flags: Annotated[tuple[str, ...] | None, _FROM_LIST] = None
    """Remarks on the timing; see `Measurement.flags`."""
    stored_measurement: Mapping[str, Any] | None = None
    """Fields of `measurement` as JSON values, exact."""
    timing_seconds: float | None = None
    """Seconds from the start of the timing process to its end; of the baseline, the median."""
    quality: float | None = None
    """Mean quality over the accuracy seeds; None if it was not measured."""
    training_equivalent: str | None = None
    """Text that trials of equivalent training share: the settings that can change the model."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> TrialDetails:
        """Read the attributes of a trial; unknown ones are ignored.

        Raises:
            ValueError: one has another type.
        """
        found = ((name, attributes.get(_KEYS.get(name, name))) for name in _NAMES)
        try:
            return cls(**{name: value for name, value in found if value is not None})
        except ValidationError as error:
            raise ValueError(fault_of(error)) from None

    def as_attributes(self) -> dict[str, Any]:
        """Return the known facts by their stored keys, as values that JSON can hold."""
        known = ((name, getattr(self, name)) for name in _NAMES)
        written = {name: value for name, value in known if value is not None and value is not False}
        return {_KEYS.get(name, name): value for name, value in written.items()}

    @cached_property
    def measurement(self) -> Measurement | None:
        """The timing, block by block; None if there is none or it is not readable."""
        try:
            return _measurement().validate_python(self.stored_measurement)
        except ValidationError:
            return None


_NAMES = tuple(field.name for field in fields(TrialDetails))


@cache
def _measurement() -> TypeAdapter[Measurement]:
    return TypeAdapter(Measurement)
