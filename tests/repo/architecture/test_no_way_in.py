"""Files are data: nothing that is read is run, unpickled, given to a shell or taken as a path."""

import ast
from pathlib import Path

from autotune.sampling.samplers import SAMPLERS
from covering import covers

PACKAGE = Path(__file__).parents[3] / "autotune"
TREES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
RUN_WHAT_THEY_READ = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
# Whose import is the point: the user's own model.py, and what it imports; a command's module.
IMPORTERS = {
    *("cli.py", "training/workload.py", "process/child/warm_host.py", "scripting/run.py"),
}
RUNS_SCRIPTS = "scripting/run.py"
BY_NAME = {"__import__", "import_module", "spec_from_file_location", "run_path", "run_module"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
STARTERS = {"subprocess.Popen", "subprocess.run", "subprocess.check_output", "psutil.Popen"}
STARTERS |= {"os.execv", "os.execve", "os.execvp", "os.execvpe"}
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}
TEXT_FILES = {"read_text", "write_text", "open", "fdopen"}


def by_file(rule):
    """Make one test of a rule that every file keeps; it names all files that do not."""

    def test():
        broken = []
        for name in TREES:
            try:
                rule(name)
            except AssertionError as error:
                broken.append(f"{name}: {error}")
        assert broken == []

    test.__name__ = rule.__name__
    return test


def dotted(node):
    """`subprocess.run` of such a call; empty for what is more than names."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, attribute):
            return f"{dotted(value)}.{attribute}".lstrip(".")
    return ""


def calls(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def imported(name):
    found = set()
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Import(names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(str(module)):
                found.add(module.partition(".")[0])
    return found


@covers("X5")
@by_file
def test_nothing_that_was_written_is_run_when_it_is_read(name):
    assert not imported(name) & RUN_WHAT_THEY_READ
    called = {function for function, _ in calls(name)}
    assert name == RUNS_SCRIPTS or not called & {
        *("eval", "exec", "compile", "torch.load", "np.load", "numpy.load"),
    }


@covers("X5")
@by_file
def test_modules_are_imported_by_name_only_for_the_users_own_code(name):
    found = {function.rpartition(".")[2] for function, _ in calls(name)} & BY_NAME
    assert not found or name in IMPORTERS


@by_file
def test_yaml_makes_no_objects(name):
    used = {dotted(n) for n in ast.walk(TREES[name]) if isinstance(n, ast.Attribute)}
    assert {n for n in used if n.startswith("yaml.") and "oad" in n} <= {"yaml.SafeLoader"}


@covers("X3")
@by_file
def test_no_shell_sees_a_command(name):
    for function, call in calls(name):
        assert function not in SHELLS
        assert not [k for k in call.keywords if k.arg == "shell"], function
        if function in STARTERS and not function.startswith("os.exec"):
            assert isinstance(call.args[0], ast.List), f"{function} takes a list of words"


@covers("X8")
@by_file
def test_the_environment_as_a_whole_goes_to_children_and_nowhere_else(name):
    by_name = set()
    for node in ast.walk(TREES[name]):
        match node:
            case ast.Call(
                func=ast.Attribute(value=source, attr="get" | "pop" | "setdefault" | "update")
            ):
                by_name.add(source)
            case ast.Subscript(value=source):
                by_name.add(source)
    found = (n for n in ast.walk(TREES[name]) if isinstance(n, ast.Attribute) and n not in by_name)
    if any(dotted(node) in {"os.environ", "os.environb"} for node in found):
        assert {function for function, _ in calls(name)} & STARTERS


@covers("R13")
@by_file
def test_spans_of_time_are_never_taken_from_a_clock_that_can_be_set(name):
    found = {function for function, _ in calls(name)} & WALL_CLOCKS
    dated = name in {"searching/confirmation/result.py", "report/html.py", "study/history.py"}
    assert found <= ({"datetime.now"} if dated else set())


@covers("P7")
@by_file
def test_text_is_utf_8_in_every_locale(name):
    for function, call in calls(name):
        owner, _, verb = function.rpartition(".")
        if verb not in TEXT_FILES or (owner in {"os", "lzma", "webbrowser"} and verb == "open"):
            continue
        given = [a.value for a in call.args if isinstance(a, ast.Constant)]
        binary = any(isinstance(mode, str) and "b" in mode for mode in given)
        named = any(keyword.arg == "encoding" for keyword in call.keywords)
        assert binary or named, f"line {call.lineno}: {function} without encoding"


@covers("X5")
def test_the_sampler_that_unpickles_what_a_database_holds_is_not_offered():
    assert not [name for name in SAMPLERS if "cma" in name.lower()]


def test_the_package_has_files_to_look_at():
    assert len(TREES) > 30
