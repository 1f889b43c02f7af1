"""A result as a patch of its script: git applies it and takes it back."""

import subprocess

import pytest

from autotune.export import export
from autotune.values.errors import UsageError
from factories import best_config
from patched_scripts import BASELINE, CHANGES, SCRIPT, SHUFFLED, answer

EVALUATES = """\
def evaluate(data):
    return DataLoader(data, shuffle=True)
loader = made_elsewhere()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty repository, in which commands are given."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def patched(folder, script, **settings):
    """The script with a patch applied, and what the patch leaves out; the patch is reversible."""
    path = folder / "train.py"
    path.write_bytes(script.encode())
    exported = export(answer(**settings), "patch")
    (folder / "a.diff").write_text(exported.text, encoding="utf-8")
    subprocess.run(["git", "apply", "a.diff"], cwd=folder, check=True)
    found = path.read_bytes().decode()
    subprocess.run(["git", "apply", "-R", "a.diff"], cwd=folder, check=True)
    assert path.read_bytes().decode() == script
    compile(found, "train.py", "exec")
    return found, exported.dropped


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_is_written_where_the_script_has_its_place(folder, name):
    value, text = CHANGES[name]
    found, dropped = patched(folder, SHUFFLED, **{name: value})
    assert text in found
    assert not dropped


def test_all_settings_at_once(folder):
    settings = {name: value for name, (value, _) in CHANGES.items()}
    found, dropped = patched(folder, SHUFFLED, persistent_workers=True, **settings)
    assert not dropped
    assert "num_workers=2, persistent_workers=True,  # ä" in found
    assert "model.compile(mode='default')\n" in found
    assert "model.to(memory_format=torch.channels_last)\n" in found


def test_what_a_script_sets_itself_is_changed_there(folder):
    own = SHUFFLED.replace(
        "parser =", "torch.set_num_threads(2)\ntorch.backends.cudnn.benchmark = False\nparser =", 1
    ).replace("for epoch", "model = torch.compile(model, mode='max-autotune')\nfor epoch")
    settings = {"num_threads": 1, "cudnn_benchmark": True, "compile_mode": "default"}
    found, dropped = patched(folder, own, **settings)
    assert not dropped
    assert "torch.set_num_threads(1)" in found
    assert "torch.backends.cudnn.benchmark = True" in found
    assert "torch.compile(model, mode='default')" in found
    assert found.count("compile(") == 1
    eager = best_config(BASELINE, BASELINE.replace(compile_mode="max-autotune"))
    named = {"model": "train.py", "arguments_sha256": "0" * 64, "maps": ()}
    eager = eager.model_copy(update={"provenance": eager.provenance.model_copy(update=named)})
    (folder / "train.py").write_text(own, encoding="utf-8")
    assert "+model = model\n" in export(eager, "patch").text


@pytest.mark.parametrize(
    ("before", "after", "settings", "text"),
    [
        (
            "lr=args.lr)",
            "lr=(args.lr * 2),  # (twice)\n)",
            {"optimizer_impl": "fused"},
            "2), fused",
        ),
        (
            "lr=args.lr)",
            "lr=args.lr)",
            {"optimizer_impl": "forloop"},
            "fused=False, foreach=False)",
        ),
        (
            "batch_size=64)",
            "batch_size=64, shuffle=False)",
            {"num_workers": 2},
            "num_workers=2,  # ä",
        ),
        ("import torch\n", "import torch\r\n", {"num_threads": 1}, "set_num_threads(1)\n"),
        ("optimizer.step()\n", "optimizer.step()", {"num_threads": 1}, "set_num_threads(1)\n"),
    ],
)
def test_ways_of_writing_a_script(folder, before, after, settings, text):
    assert before in SHUFFLED
    found, dropped = patched(folder, SHUFFLED.replace(before, after), **settings)
    assert text in found
    assert not dropped


def test_evaluations_are_not_put_under_autocast(folder):
    evaluates = SHUFFLED + "    held = model(next(iter(held_out))[0])\n"
    found, _ = patched(folder, evaluates, amp_dtype="bfloat16")
    assert found.count("autocast") == 1
    assert "\n    held = model" in found


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (SHUFFLED.replace("    shuffle=True,\n", "    shuffle=True,\n    **{},\n"), "num_workers"),
        (SHUFFLED.replace("data, batch_size=64)", "data, 64, True)"), "num_workers"),
        (SHUFFLED.replace("loader = DataLoader(", "loader = EndlessDataLoader("), "num_workers"),
        (EVALUATES, "num_workers"),
        (SHUFFLED.replace("model.parameters()", "self.parameters()"), "compile_mode"),
        (SCRIPT, "num_workers"),  # two loaders, and neither says that it feeds training
        (SHUFFLED + "torch.optim.SGD(model.parameters())\n", "optimizer_impl"),
        (SHUFFLED.replace("prediction = model(", "prediction = call(model, "), "amp_dtype"),
        (SHUFFLED.replace("model.parameters()", "list(model.parameters())"), "compile_mode"),
        (SHUFFLED.replace('"--batch-size"', '"--batch"'), "batch_size"),
    ],
)
def test_a_setting_without_one_certain_place_is_named_and_nothing_changes(folder, script, name):
    (folder / "train.py").write_text(script, encoding="utf-8")
    exported = export(answer(**{name: CHANGES[name][0]}), "patch")
    assert [*exported.dropped] == [name]
    assert f"#   {exported.dropped[name]}" in exported.text
    assert "@@" not in exported.text


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("def", "cannot be read: invalid syntax")]
)
def test_a_script_that_is_not_there_or_no_python_is_refused(folder, text, said):
    if text is not None:
        (folder / "train.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=f"train.py {said}"):
        export(answer(num_workers=2), "patch")


def test_a_script_above_this_directory_is_refused(folder, monkeypatch):
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    best = answer(num_workers=2)
    named = best.provenance.model_copy(update={"model": str(folder / "train.py")})
    with pytest.raises(UsageError, match="is not below this directory"):
        export(best.model_copy(update={"provenance": named}), "patch")


def test_a_model_py_is_refused(folder):
    with pytest.raises(UsageError, match="is for training scripts"):
        export(best_config(BASELINE, BASELINE), "patch")
