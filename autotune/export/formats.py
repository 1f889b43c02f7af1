"""A result in the forms that other tools read, with the settings that each form lacks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.script import with_flags
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.knobs import ALL_KNOBS, KNOBS, knob_named
from autotune.knobs.base import Value, spelled
from autotune.knobs.ranks import COMM_HOOKS, DDP_ARGUMENTS
from autotune.values.strict_yaml import dump

LR_FACTOR = "lr_factor"
"""Name of the factor on model.py's learning rates; left out if the factor is 1."""
PROCESSES = "processes"
"""Name under which a form says that it cannot start the processes."""
_FORMATS: dict[Value, str] = {"bfloat16": "BF16", "float16": "FP16"}


@dataclass(frozen=True, slots=True)
class Exported:
    """A text, with the settings that it does not carry."""

    text: str
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Names of settings left out, each with its value and what to do instead."""
    use: str = ""
    """Instruction to use the text."""


def left_out(
    best: BestConfig,
    carried: Collection[str],
    in_force: Mapping[str, Value] | None = None,
    instead: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings that a form cannot carry, each with what to do instead.

    Args:
        best: the result.
        carried: knobs that the form carries, and "processes" if it starts several.
        in_force: settings that the form's reader makes itself, unlike PyTorch's defaults.
        instead: what to do about a knob. Default: PyTorch's own call.
    """
    config, ways = best.training_config, instead or {}
    own: dict[str, Value] = {"batch_size": 1, **(in_force or {})}  # 1 is a DataLoader's own
    dropped = {
        knob.name: f"{knob.name}={spelled(value)}: {ways.get(knob.name, knob.call)}"
        for knob, value in config.items()
        if knob.name not in carried
        and not config.is_idle(knob)
        and value != own.get(knob.name, knob.default)
    }
    if best.processes is not None and PROCESSES not in carried:
        way = f"start the training by torchrun --nproc-per-node {best.processes}"
        dropped[PROCESSES] = f"{PROCESSES}={best.processes}: {way}"
    factor = best.lr_scaling.factor
    if factor != 1 and LR_FACTOR not in carried:
        dropped[LR_FACTOR] = f"{LR_FACTOR}={factor:g}: multiply your learning rates by it"
    return dropped


def own_words(best: BestConfig) -> list[str]:
    """Return the words that add the user's own flags to a script's arguments, at their end."""
    return list(with_flags((), (), best.training_config))


def carried_flags(best: BestConfig) -> list[str]:
    """Return the user's own flags that such words carry: they cannot take a switch away."""
    flags = best.training_config.of_kind("flags")
    return [name for name, value in flags.items() if value is not False or name[:1] != "-"]


def is_half_on_cpu(best: BestConfig) -> bool:
    """Return True for float16 on a CPU, which Accelerate refuses and Lightning replaces."""
    return best.machine.device == "cpu" and best.config.get("amp_dtype") == "float16"


def ddp_arguments(config: TrainingConfig) -> dict[str, tuple[str, Value]]:
    """Return knob to the argument of DistributedDataParallel, with its value if not the default."""
    return {
        knob: (argument, config[knob])
        for knob, argument in DDP_ARGUMENTS.items()
        if config[knob] != KNOBS[knob].default
    }


def handler_fields(config: TrainingConfig) -> dict[str, tuple[str, str]]:
    """Return knob to the field of DistributedDataParallelKwargs that has it, and the field's code.

    Those at DistributedDataParallel's defaults are left out.
    """
    found = {knob: (name, repr(it)) for knob, (name, it) in ddp_arguments(config).items()}
    if (dtype := config["ddp_comm_dtype"]) is not None:
        found["ddp_comm_dtype"] = ("comm_hook", f"DDPCommunicationHookType.{_FORMATS[dtype]}")
    return found


# The optimizer is the user's choice; the default of `optim` is fused AdamW.
_UNFUSED = "optim=adamw_torch if yours is AdamW, which transformers would fuse"


def to_hf(best: BestConfig) -> Exported:
    """Return a file for `HfArgumentParser.parse_yaml_file`."""
    words = _words(best)
    merged = {name: value for fields in words.values() for name, value in fields.items()}
    use = "HfArgumentParser(TrainingArguments).parse_yaml_file(FILE)"
    if "optim" in merged:
        use += "; leave out optim if yours is not AdamW"
    # On the handler that the Trainer makes itself.
    instead = {
        knob: f"trainer.accelerator.ddp_handler.{name} = {code}, before trainer.train()"
        for knob, (name, code) in handler_fields(best.training_config).items()
    }
    if best.training_config["optimizer_impl"] is None:
        instead["optimizer_impl"] = _UNFUSED
    left = left_out(best, words.keys(), {"optimizer_impl": "fused"}, instead)
    return Exported(dump(merged), left, use)


def _words(best: BestConfig) -> dict[str, dict[str, Any]]:
    """Return knob (or device) to fields, with all values explicit."""
    config = best.training_config
    dtype, mode = config["amp_dtype"], config["compile_mode"]
    on_cpu = best.machine.device == "cpu"
    words: dict[str, dict[str, Any]] = {
        "device": {"use_cpu": on_cpu},  # without it transformers refuses bf16 on a CPU
        "batch_size": {"per_device_train_batch_size": config["batch_size"]},
        "num_workers": {"dataloader_num_workers": config["num_workers"]},
        "persistent_workers": {"dataloader_persistent_workers": config["persistent_workers"]},
        "pin_memory": {"dataloader_pin_memory": config["pin_memory"]},
        "compile_mode": {"torch_compile": mode is not None},
    }
    if config["optimizer_impl"] == "fused":
        words["optimizer_impl"] = {"optim": "adamw_torch_fused"}
    count = config["accumulation_steps"]
    words["accumulation_steps"] = {} if count == 1 else {"gradient_accumulation_steps": count}
    if not is_half_on_cpu(best):
        words["amp_dtype"] = {"bf16": dtype == "bfloat16", "fp16": dtype == "float16"}
    if config["num_workers"]:  # else transformers refuses it
        words["prefetch_factor"] = {"dataloader_prefetch_factor": config["prefetch_factor"]}
    tf32 = config["float32_matmul_precision"] == "high" and not on_cpu
    if tf32 or config["float32_matmul_precision"] == "highest":
        words["float32_matmul_precision"] = {"tf32": True} if tf32 else {}
    if best.processes is not None:
        # Else transformers looks for unused parameters in each step.
        words["find_unused"] = {"ddp_find_unused_parameters": False}
        given = ddp_arguments(config)
        given.pop("gradient_as_bucket_view", None)  # for which it has no word
        words |= {knob: {f"ddp_{name}": value} for knob, (name, value) in given.items()}
    if mode is not None:
        words["compile_mode"] |= {
            "torch_compile_backend": "inductor",
            "torch_compile_mode": mode,
            "tf32": tf32,  # else transformers switches it on by itself when it compiles
        }
    return words


_ACCELERATE_PRECISION: dict[Value, str] = {None: "no", "bfloat16": "bf16", "float16": "fp16"}
# Accelerator() reads it; a configuration file has no key for it without DeepSpeed.
_ACCUMULATION = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
# Accelerator() reads it; accelerate launch sets it only for one process, and without it several on
# a CPU would not join.
_USE_CPU = "ACCELERATE_USE_CPU"
_OWN_SHAPES = "accelerate compiles again for each shape; its file has no key for torch's own choice"
_IN_USE = "the command after `use:` has it"
_OWN_THREADS = "accelerate launch chooses the number itself unless OMP_NUM_THREADS is exported"


def to_accelerate(best: BestConfig) -> Exported:
    """Return a file for all processes; it cannot carry batch size and loader."""
    config = best.training_config
    mode, refused = config["compile_mode"], is_half_on_cpu(best)
    starts_all = best.processes is not None
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        # MULTI_GPU starts several on a CPU, too: MULTI_CPU asks for mpirun.
        "distributed_type": "MULTI_GPU" if starts_all else "NO",
        "num_processes": best.processes if starts_all else 1,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": best.machine.device == "cpu",
        "debug": False,
        "mixed_precision": _ACCELERATE_PRECISION[None if refused else config["amp_dtype"]],
    }
    carried = {"compile_mode"} | (set() if refused else {"amp_dtype"})
    carried |= set() if config["compile_dynamic"] is None else {"compile_dynamic"}
    carried |= {PROCESSES} if starts_all else set()
    if mode is not None:
        values["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR",
            "dynamo_mode": mode,
            "dynamo_use_fullgraph": False,
            "dynamo_use_dynamic": bool(config["compile_dynamic"]),
        }
    instead = {"num_threads": _OWN_THREADS if config["num_threads"] is None else _IN_USE}
    instead |= _handler(config)
    instead |= {"accumulation_steps": _IN_USE, "compile_dynamic": _OWN_SHAPES}
    instead |= {knob.name: _IN_USE for knob, value in config.items() if knob.environ(value)}
    instead |= {f"flags.{name}": _IN_USE for name in carried_flags(best)}
    in_force: dict[str, Value] = {"num_threads": "its own", "compile_dynamic": False}
    dropped = left_out(best, carried, in_force, instead)
    return Exported(dump(values), dropped, _launch(best))


def _launch(best: BestConfig) -> str:
    """Return the command line, with what the file cannot express."""
    config = best.training_config
    count, threads = config["accumulation_steps"], config["num_threads"]
    pairs = [f"{name}={shlex.quote(value)}" for name, value in environ_of(config).items()]
    pairs += [] if count == 1 else [f"{_ACCUMULATION}={count}"]
    several = best.processes is not None
    pairs += [f"{_USE_CPU}=true"] if several and best.machine.device == "cpu" else []
    words = [*(["env", *pairs] if pairs else []), "accelerate launch --config_file FILE"]
    words += [] if threads is None else [f"--num_cpu_threads_per_process {threads}"]
    return " ".join((*words, "train.py", *map(shlex.quote, own_words(best))))


def _handler(config: TrainingConfig) -> dict[str, str]:
    """Return by knob how to set it in Accelerate: all are arguments of one handler."""
    fields = handler_fields(config)
    words = ", ".join(f"{name}={code}" for name, code in fields.values())
    whole = f"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({words})])"
    first = next(iter(fields), None)
    return {
        knob: whole if knob == first else "in the same DistributedDataParallelKwargs"
        for knob in fields
    }


_LIGHTNING_PRECISION: dict[Value, str] = {
    None: "32-true",
    "bfloat16": "bf16-mixed",
    "float16": "16-mixed",
}
_IN_TORCH = ("num_threads", "float32_matmul_precision", "compile_mode")
_FLOAT16_ON_CPU = (
    "Lightning would silently use bfloat16 on a CPU; use torch.autocast in training_step"
)


def to_lightning(best: BestConfig) -> Exported:
    """Return a section for each call: Trainer, DataLoader, the optimizer, functions of torch.

    `benchmark` is always written, because Lightning's own choice depends on `deterministic`.
    """
    config = best.training_config
    loader = {n: v for k in ALL_KNOBS for n, v in k.loader_kwargs(config[k.name]).items()}
    optimizer = {n: v for k in ALL_KNOBS for n, v in k.optimizer_kwargs(config[k.name]).items()}
    silent = is_half_on_cpu(best)
    sections: dict[str, dict[str, Any]] = {
        "trainer": _trainer(best, _LIGHTNING_PRECISION[None if silent else config["amp_dtype"]]),
        "dataloader": loader,
        "optimizer": optimizer,
        "torch": {name: config[name] for name in _IN_TORCH if config[name] is not None},
    }
    ranks = {} if best.processes is None else dict(ddp_arguments(config).values())
    if best.processes is not None and not ranks:
        sections["trainer"]["strategy"] = "ddp"
    carried = {k.name for k in ALL_KNOBS if k.loader_kwargs(config[k.name])}
    carried |= {"accumulation_steps", "cudnn_benchmark", "deterministic", "optimizer_impl"}
    carried |= {*_IN_TORCH, *DDP_ARGUMENTS, PROCESSES}
    carried |= set() if silent else {"amp_dtype"}
    hook = f"default_hooks.{COMM_HOOKS.get(str(config['ddp_comm_dtype']))}"
    on_cpu = best.machine.device == "cpu"
    no_hook = "Lightning registers no such hook on a CPU"
    instead = {"ddp_comm_dtype": no_hook if on_cpu else f"DDPStrategy(ddp_comm_hook={hook})"}
    instead |= {"amp_dtype": _FLOAT16_ON_CPU} if silent else {}
    dropped = left_out(best, carried, instead=instead)
    use = (
        "Trainer(**trainer), DataLoader(dataset, **dataloader), the optimizer(**optimizer), and of "
        "torch set_num_threads, set_float32_matmul_precision, compile(model, mode=compile_mode)"
    )
    if ranks:
        sections["strategy"] = ranks
        use = f"strategy=DDPStrategy(**strategy) for the trainer; {use}"
    return Exported(dump({name: s for name, s in sections.items() if s}), dropped, use)


def _trainer(best: BestConfig, precision: str) -> dict[str, Any]:
    """Return the arguments of the Trainer, without those of the exchange between processes."""
    config = best.training_config
    found: dict[str, Any] = {"accelerator": "cpu" if best.machine.device == "cpu" else "auto"}
    found["devices"] = best.processes or 1
    found |= {"precision": precision, "benchmark": config["cudnn_benchmark"]}
    if config["accumulation_steps"] != 1:
        found["accumulate_grad_batches"] = config["accumulation_steps"]
    if config["deterministic"]:
        found["deterministic"] = True
    return found


_REASONS = {"TORCH_COMPILE_DISABLE": "  # trains without torch.compile (compile_mode: null)"}


def to_json(best: BestConfig) -> Exported:
    """Return all settings by name, with the processes and the learning rate's factor."""
    facts = {**best.training_config.as_dict(), **_beside(best)}
    return Exported(json.dumps(facts, indent=2) + "\n")


def to_python(best: BestConfig) -> Exported:
    """Return all settings as a literal, each with the PyTorch call that applies it."""
    lines = [
        f"    {name!r}: {value!r},  # {knob_named(name).call}\n"
        for name, value in best.training_config.as_dict().items()
    ]
    beside = "".join(f"{name.upper()} = {value!r}\n" for name, value in _beside(best).items())
    use = "from FILE import SETTINGS; each line names the call that applies it"
    return Exported("SETTINGS = {\n" + "".join(lines) + "}\n" + beside, use=use)


def _beside(best: BestConfig) -> dict[str, Value]:
    """Return the processes and the learning rate's factor, unless one process and 1."""
    factor = best.lr_scaling.factor
    found: dict[str, Value] = {
        PROCESSES: best.processes,
        LR_FACTOR: None if factor == 1 else factor,
    }
    return {name: value for name, value in found.items() if value is not None}


def to_env(best: BestConfig) -> Exported:
    """Return lines that a shell reads with `. FILE`."""
    variables, carried = _variables(best)
    exports = "".join(
        f"export {name}={shlex.quote(value)}{_REASONS.get(name, '')}\n"
        for name, value in variables.items()
    )
    use = ". FILE, in the shell that starts training"
    return Exported(exports, left_out(best, carried), use)


def to_torchrun(best: BestConfig) -> Exported:
    """Return a shell script; its arguments are the training script and the script's arguments."""
    variables, carried = _variables(best)
    pairs = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
    words = "".join(f" {shlex.quote(word)}" for word in own_words(best))
    launcher = f"torchrun --standalone --nproc-per-node {best.processes or 1}"
    command = f'exec env {pairs}{launcher} "$@"{words}\n'
    carried |= {PROCESSES, *(f"flags.{name}" for name in carried_flags(best))}
    return Exported(command, left_out(best, carried), "sh FILE train.py --its --arguments")


def _variables(best: BestConfig) -> tuple[dict[str, str], set[str]]:
    """Return environment variable to value, and the names of the knobs that they carry."""
    config = best.training_config
    found = environ_of(config)
    carried = {"num_threads", *(k.name for k, value in config.items() if k.environ(value))}
    if config["num_threads"] is not None:
        found = {"OMP_NUM_THREADS": str(config["num_threads"]), **found}
    if config["compile_mode"] is None:
        found["TORCH_COMPILE_DISABLE"] = "1"
        carried.add("compile_mode")
    return found, carried
