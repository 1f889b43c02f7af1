"""Facts on a workload that are known without training it; they decide which knobs matter."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Signature:
    """Keyword arguments that a function of the user's takes."""

    text: str
    """The function with its parameters, as Python spells them."""
    defaults: dict[str, bool | int | float | str | None]
    """Name of each keyword argument to its default; None if that is no plain value."""
    takes_any: bool = False
    """True if it takes `**options`."""


@dataclass(frozen=True, slots=True)
class ScriptFlag:
    """A flag that a script's parser knows, or a key of its configuration."""

    names: tuple[str, ...]
    """Spellings, such as -b and --batch-size."""
    value: int | None
    """Value in the observed run; None if it is no whole number."""
    is_open: bool = False
    """True if it has no value there, so that the script itself chooses one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Surroundings of the training of a script, as its observed run showed it."""

    flags: tuple[ScriptFlag, ...] = ()
    refused: tuple[str, ...] = ()
    """Kinds of words, "--" for flags and "=" for keys, of which unknown ones end the script."""
    folders: tuple[str, ...] = ()
    """Folders in which it wrote files."""
    overwritten: tuple[str, ...] = ()
    """Files that it wrote to although they existed."""
    deleted: tuple[str, ...] = ()
    """Files and folders that it deleted although they existed before."""
    kept: str = ""
    """Folder of the files that were kept as they were; empty if none was."""
    trackers: tuple[str, ...] = ()
    """Experiment trackers that it uses."""
    packages: tuple[str, ...] = ()
    """Modules of installed packages that it imported, as far as a warm host may do so for it."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Facts on several processes that train together, as they were observed."""

    comm_dtypes: tuple[str, ...] = ()
    """Number formats, below that of the parameters, in which they can add up gradients."""
    has_buffers: bool = False
    """True if the model has buffers, such as BatchNorm's."""
    graph_obstacle: str = ""
    """Reason why the graph cannot be called static; empty if it was the same in each step."""
    unused: tuple[str, ...] = ()
    """Parameters that got no gradient in any step."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Facts on the user's model.py, found by a child that built it once."""

    dataset_samples: int | None
    """Value of len(dataset); None for an iterable dataset without a length."""
    image_batches: bool
    """True if batches hold 4-D tensors and the model has 4-D weights, or both 5-D."""
    optimizer_options: bool
    """True if build_optimizer is absent or takes options such as fused=True."""
    has_evaluate: bool
    baseline: dict[str, bool | int | float | str | None]
    """The workload's BASELINE, with the settings that importing the file makes in the process."""
    model_parameters: int
    model_tensors: int = 0
    """Parameter tensors of the model; 0 if unknown."""
    sample_bytes: int = 0
    """Bytes of the tensors of one sample, once collated."""
    local_modules: dict[str, str] = field(default_factory=dict)
    """The user's files that model.py imports: path from its folder to SHA-256."""
    counts_tokens: bool = False
    """True if model.py defines count_tokens."""
    workers_obstacle: str = ""
    """Reason why workers would not load the stream's samples once each; empty if they would, and
    for a map-style dataset."""
    repeated_blocks: bool = False
    """True if the model repeats blocks that can be compiled one by one."""
    has_checkpoint: bool = False
    """True if model.py has a function checkpoint(model)."""
    attention: bool = False
    """True if a source of the model mentions torch's scaled_dot_product_attention."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    """Signatures of build_model and build_dataset, by name."""
    ranks: RankFacts | None = None
    """Facts on the processes that train together; None for one."""
