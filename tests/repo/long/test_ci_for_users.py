"""Parts for a user's CI: the action, the reusable workflow and the hooks, each run for real."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from children import autotune, completed
from factories import best_config, written

ROOT = Path(__file__).parents[3]
ACTION = ROOT / "actions" / "compare" / "action.yaml"
WORKFLOW = ROOT / ".github" / "workflows" / "compare.yaml"
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
NOT_FASTER, USAGE = 8, 2
SAYS = "import json, sys\nprint(json.dumps(sys.argv[1:]))\n"
UNKNOWN = "batch_sise: [8, 16]\n"


def action():
    found = yaml.safe_load(ACTION.read_text())
    (step,) = found["runs"]["steps"]
    return {"inputs": found["inputs"], "env": step["env"], **step}


def workflow():
    """The last step of the reusable workflow."""
    found = yaml.safe_load(WORKFLOW.read_text())
    job = found["jobs"]["still-faster"]
    # YAML 1.1 reads the key `on` as true.
    inputs = found[True]["workflow_call"]["inputs"]
    return {"inputs": inputs, "env": job["env"], **job["steps"][-1]}


def step_run(step, folder, program, **given):
    """A finished step, as a runner starts it, with a Python program in the place of autotune."""
    inputs = {name: one.get("default", "") for name, one in step["inputs"].items()} | given
    named = {name: re.fullmatch(r"\$\{\{ inputs\.(\S+) \}\}", v) for name, v in step["env"].items()}
    assert all(named.values()), "each variable is one input"
    environ = {name: inputs[found[1]] for name, found in named.items() if found}
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    stand_in = tools / "autotune"
    stand_in.write_text(f"#!{sys.executable}\n{program}")
    stand_in.chmod(0o755)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    script = written(folder, step["run"], "step.sh")
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
    return completed(folder, shell, **environ, PATH=path)


@pytest.mark.parametrize("step", [action(), workflow()], ids=["action", "workflow"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "model.py"}, ["compare", "model.py", "best.yaml", "--require-faster"]),
        (
            {
                "model": "my train.py",
                "best": "a b.yaml",
                "options": "--rounds 12",
                "arguments": "--epochs 9 *.py $(id)",
            },
            [
                *("compare", "--rounds", "12", "my train.py", "a b.yaml", "--require-faster"),
                *("--", "--epochs", "9", "*.py", "$(id)"),
            ],
        ),
    ],
)
def test_inputs_become_words_of_the_command_and_nothing_in_them_is_run(
    tmp_path, step, given, words
):
    done = step_run(step, tmp_path, SAYS, **given)
    assert json.loads(done.stdout) == words


def test_no_input_is_written_into_the_shell_of_any_step():
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["still-faster"]["steps"]
    steps += yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    ran = [step for step in steps if "run" in step]
    assert len(ran) == 3
    for step in ran:
        assert "${{" not in step["run"]
        assert step["working-directory"] == "${{ inputs.working-directory }}"


@pytest.mark.parametrize("code", [0, NOT_FASTER])
def test_the_step_ends_with_the_code_of_the_comparison(tmp_path, code):
    done = step_run(action(), tmp_path, f"import sys\nsys.exit({code})\n", model="model.py")
    assert done.returncode == code, done.stderr


def hook_run(name, *files):
    """The hook's own command, as pre-commit appends the files to it."""
    program, *words = shlex.split(HOOKS[name]["entry"])
    assert program == "autotune"
    return autotune(ROOT, *words, *files)


def test_the_hooks_pass_what_is_recorded_and_shipped():
    answers = sorted(ROOT.glob("studies/*/recorded_best.yaml"))
    spaces = sorted(ROOT.glob("search_spaces/*.yaml"))
    assert answers
    assert spaces
    for name, files in {"autotune-best": answers, "autotune-space": spaces}.items():
        done = hook_run(name, *files)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_fault_of_every_file_is_named_with_its_place(tmp_path):
    config = TrainingConfig.of({"batch_size": 16})
    best = tmp_path / "best.yaml"
    write_best(best_config(config, config), best)
    text = best.read_text()
    best.write_text(text.replace("batch_size: 16", "batch_size: -1"))
    later = written(tmp_path, text.replace("autotune: 1", "autotune: 99", 1), "best-later.yaml")
    space = written(tmp_path, UNKNOWN)
    absent = tmp_path / "absent.yaml"
    done = hook_run("autotune-best", best, later, space, absent)
    assert (done.returncode, done.stdout) == (USAGE, "")
    lines = done.stderr.removeprefix("autotune: ").splitlines()
    assert [line.partition(".yaml")[0] for line in dict.fromkeys(lines)][-3:] == [
        str(path.with_suffix("")) for path in (later, space, absent)
    ]
    assert lines[0].startswith(f"{best}:3:")
    found = hook_run("autotune-space", space)
    assert f"{space}:1:1: unknown setting 'batch_sise'. Did you mean 'batch_size'?" in found.stderr
