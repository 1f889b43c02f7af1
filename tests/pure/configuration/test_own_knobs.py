"""Knobs of the user's own: their names, their place in a space, in configurations and in files."""

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.mismatch import missing_variables
from autotune.configuration.script import own_flags, plan_run, with_flags
from autotune.configuration.search_space import find_space, read_space
from autotune.configuration.training_config import TrainingConfig, environ_of, setting_faults
from autotune.knobs import knob_named, own_fault
from autotune.values.errors import UsageError
from factories import best_config, cpu_machine, cuda_machine, narrowed, written

OWN = {
    "env.MALLOC_ARENA_MAX": "2",
    "flags.--attn": "sdpa",
    "options.checkpoint": True,
    "dataset_options.size": 0.5,
}
SPACE = """\
env:
  MALLOC_ARENA_MAX: {values: [null, "2"], effect: exact}
options:
  checkpoint: [false, true]
  width: {low: 16, high: 64, log2: true, effect: statistics}
"""


def faults(folder, text):
    with pytest.raises(UsageError) as caught:
        read_space(written(folder, text))
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def read(folder, text=SPACE):
    return read_space(written(folder, text))


def answer(**settings):
    config = TrainingConfig.of({"batch_size": 64, **settings})
    return best_config(config, TrainingConfig.of({})).with_effects(
        {"env.MALLOC_ARENA_MAX": "exact"}
    )


def test_a_space_offers_them_beside_the_others_by_their_flat_names(tmp_path):
    file = read(tmp_path, "num_workers: [0, 2]\n" + SPACE)
    assert dict(file.offers) == {
        "num_workers": (0, 2),
        "env.MALLOC_ARENA_MAX": (None, "2"),
        "options.checkpoint": (False, True),
        "options.width": (16, 32, 64),
    }
    effects = {
        "env.MALLOC_ARENA_MAX": "exact",
        "options.checkpoint": "numerics",
        "options.width": "statistics",
    }
    assert file.own.effects == effects


def test_the_space_of_a_machine_has_them_and_the_baselines_value_of_each(tmp_path):
    space = narrowed(written(tmp_path, SPACE), cpu_machine(), {"options.width": 48})
    assert space.domains["options.width"] == (16, 32, 64, 48)
    assert space.domains["env.MALLOC_ARENA_MAX"] == (None, "2")
    assert space.size == 2 * 3 * 4
    assert len(set(space.configurations())) == space.size
    assert space.effect("options.width") == "statistics"
    assert space.effect("batch_size") == "statistics"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env:\n  HF_TOKEN: ['x']\n", "space.yaml:2:3: HF_TOKEN looks like a secret (TOKEN), and"),
        ("env:\n  PATH: ['x']\n", "space.yaml:2:3: PATH names files or programs to use"),
        ("env:\n  AUTOTUNE_X: ['1']\n", "space.yaml:2:3: AUTOTUNE_X is needed by Python, the"),
        ("env:\n  LD_PRELOAD: [x]\n", "space.yaml:2:3: LD_PRELOAD is set by the setting cpu_allo"),
        ("env:\n  NODE_RANK: ['1']\n", "space.yaml:2:3: NODE_RANK is needed by Python, the laun"),
        ("env:\n  A-B: ['1']\n", "space.yaml:2:3: 'A-B' cannot be the name of an environment var"),
        ("env:\n  A: [1]\n", "space.yaml:2:7: env.A=1 is not possible; expected printable text"),
        ("env:\n  A: {values: [x], effect: none}\n", "space.yaml:2:28: env.A: effect must be one"),
        ("env:\n  A: {values: [x], effects: exact}\n", "space.yaml:2:20: unknown word 'effects'."),
        ("env:\n  A: {values: [x, x]}\n", "space.yaml:2:19: env.A='x' is listed twice."),
        ("env:\n  A: x\n", "space.yaml:2:6: env.A needs a list with at least one value"),
        ("env: [A]\n", "space.yaml:1:6: env needs names, each with its values; got ['A']."),
        ("options:\n  a-b: [1]\n", "space.yaml:2:3: 'a-b' cannot be the name of an argument of"),
        ("options:\n  a: [1, true]\n", "space.yaml:2:10: options.a=True is listed twice."),
        ("options:\n  a: {values: [1], baseline: [2]}\n", "space.yaml:2:30: options.a=[2] is not"),
        ("flags:\n  --a=b: [1]\n", "space.yaml:2:3: '--a=b' cannot be the name of a flag; write"),
        ("flags:\n  --a: [true, x]\n", "space.yaml:2:8: flags.--a: true and false switch a flag"),
    ],
)
def test_what_is_wrong_with_one_is_told_with_its_place(tmp_path, text, said):
    (line,) = faults(tmp_path, text)
    assert line.startswith(said)


SECRETS = ["env.AWS_ACCESS_KEY_ID", "env.HF_TOKEN_2", "env.PGPASSWORD", "flags.--apiKey"]
HARMLESS = ["env.TOKENIZERS_PARALLELISM", "env.KEYS", "options.max_tokens", "flags.--key-size"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_by_its_name(name):
    assert "looks like a secret" in str(own_fault(name))


@pytest.mark.parametrize("name", HARMLESS)
def test_a_word_that_only_begins_like_a_secret_is_none(name):
    assert own_fault(name) is None


def test_a_configuration_holds_them_by_name_and_not_where_they_are_null():
    config = TrainingConfig.of({**OWN, "env.OTHER": None})
    assert config == TrainingConfig.of(config.as_dict())
    assert {name: config[name] for name in OWN} == OWN
    assert config["env.OTHER"] is None
    assert "env.OTHER" not in config.as_dict()
    assert config.of_kind("options") == {"checkpoint": True}
    assert config.of_kind("dataset_options") == {"size": 0.5}
    assert config.differences(TrainingConfig.of({})) == OWN
    assert TrainingConfig.of({}).differences(config) == dict.fromkeys(OWN)
    assert config.replace(**dict.fromkeys(OWN)) == TrainingConfig.of({})
    with pytest.raises(KeyError):
        config["nothing"]


def test_a_setting_of_a_file_that_names_no_such_knob_is_refused():
    settings = {"env.LD_PRELOAD": "evil.so", "env.A": 1, "envs.A": "x", "options.a": float("nan")}
    assert list(setting_faults(settings)) == list(settings)


@pytest.mark.parametrize(
    ("before", "name", "value", "after"),
    [
        ((), "--attn", "sdpa", ("--attn", "sdpa")),
        (("--attn", "eager", "x"), "--attn", "sdpa", ("--attn", "sdpa", "x")),
        (("--attn=eager",), "--attn", "sdpa", ("--attn=sdpa",)),
        (("a", "--", "b"), "--attn", "sdpa", ("a", "--attn", "sdpa", "--", "b")),
        (("model=gpt",), "attn", "sdpa", ("model=gpt", "attn=sdpa")),
        (("attn=eager", "attn"), "attn", "sdpa", ("attn=sdpa", "attn")),
        (("+attn=eager",), "+attn", True, ("+attn=true",)),
        (("x",), "--fp16", True, ("x", "--fp16")),
        (("--fp16", "x"), "--fp16", False, ("x",)),
        (("--lr", "1"), "--lr", 0.5, ("--lr", "0.5")),
    ],
)
def test_a_flag_is_put_into_a_scripts_arguments(before, name, value, after):
    config = TrainingConfig.of({f"flags.{name}": value})
    assert with_flags(before, (), config) == after
    if not isinstance(value, bool) or not name.startswith("-"):
        assert own_flags(config)[0].given(after) == str(value).lower()


def test_best_yaml_with_one_says_its_effect(tmp_path):
    best = answer(**OWN)
    write_best(best, tmp_path / "best.yaml")
    assert read_best(tmp_path / "best.yaml") == best
    assert best.training_config["dataset_options.size"] == 0.5
    assert best.effects["env.MALLOC_ARENA_MAX"] == "exact"
    assert best.effects["options.checkpoint"] == "numerics"


def test_what_only_cuda_reads_is_dropped_with_a_note_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    text = 'portable: true\nenv:\n  PYTORCH_ALLOC_CONF: [null, "expandable_segments:True"]\n'
    path, name = written(tmp_path, text), "env.PYTORCH_ALLOC_CONF"
    on_cpu = narrowed(path, cpu_machine())
    assert on_cpu.domains[name] == (None,)
    assert on_cpu.notes == (f"{name}=expandable_segments:True dropped: only CUDA reads it",)
    assert narrowed(path, cuda_machine()).domains[name] == (None, "expandable_segments:True")


@pytest.mark.parametrize(
    ("torch", "name"),
    [
        ("2.9.1+cu128", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.10.0", "PYTORCH_ALLOC_CONF"),
        ("2.11.0a0+nv", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_a_variable_is_written_by_the_name_that_torch_reads(monkeypatch, torch, name):
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    own = {"env.PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    config = TrainingConfig.of({**own, "env.MALLOC_ARENA_MAX": "2"})
    monkeypatch.setattr("autotune.knobs.own.torch_version", lambda: torch)
    assert environ_of(config) == {name: "expandable_segments:True", "MALLOC_ARENA_MAX": "2"}


def test_a_program_is_told_of_the_older_variable_that_torch_reads_first(monkeypatch):
    config = TrainingConfig.of({"env.PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:native")
    (line,) = missing_variables(config)
    assert line.startswith(
        "environment: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the file, backend:native"
    )
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert missing_variables(config) == []


def test_run_applies_what_cannot_change_the_model_and_the_rest_with_permission():
    config = TrainingConfig.of(OWN)
    effects = answer(**OWN).effects or {}
    plan = plan_run(config, {}, [], allow_numerics=False, effects=effects)
    assert "env.MALLOC_ARENA_MAX" in plan.asked
    assert "needs --allow-numerics" in plan.withheld["flags.--attn=sdpa"]
    assert "autotune.load" in plan.withheld["options.checkpoint=true"]
    assert [name for name in plan.settings if name in OWN] == ["env.MALLOC_ARENA_MAX"]
    allowed = plan_run(config, {}, [], allow_numerics=True, effects=effects)
    assert allowed.by_flag == {"flags.--attn": "--attn"}
    assert "flags.--attn" in allowed.settings
    own = plan_run(config, {"flags.--attn": "sdpa"}, [], allow_numerics=False, effects=effects)
    assert own.by_flag == {"flags.--attn": "--attn"}, "the script was measured with it before"


def test_variables_of_nccl_are_for_several_processes_on_gpus(tmp_path):
    name = "env.NCCL_MAX_CTAS"
    assert knob_named(name).of_ranks
    assert not knob_named("env.OMP_PROC_BIND").of_ranks
    text = "portable: true\nenv:\n  NCCL_MAX_CTAS: [null, '8']\n"
    on_cpu = narrowed(written(tmp_path, text), cpu_machine())
    assert on_cpu.notes == (f"{name}=8 dropped: only CUDA reads it",)
    on_gpu = narrowed(written(tmp_path, text), cuda_machine())
    assert on_gpu.domains[name] == (None, "8")


def test_the_first_part_of_the_full_space_has_no_settings_of_the_rest():
    space = narrowed(find_space("full"), cuda_machine())
    assert space.domains["env.PYTORCH_ALLOC_CONF"] == (None, "expandable_segments:True")
    assert space.first.domains["accumulation_steps"] == (1,)
    assert None in space.first.domains["compile_dynamic"]
    assert space.first.domains["activation_memory_budget"] == (1.0,)
