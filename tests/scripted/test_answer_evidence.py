"""Evidence of an answer: FLOPs and the device's rate of products, and memory that grows."""

from dataclasses import replace

import pytest

from autotune.configuration.best_config import facts, read_best
from autotune.configuration.evidence import Arithmetic
from autotune.configuration.job import CountFlops, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import answer_lines
from autotune.process.runner import SubprocessRunner
from autotune.searching.confirmation.result import bytes_per_second, used
from autotune.searching.run.events import Answered
from autotune.training.arithmetic import is_heavy
from autotune.values.measurement import Noise
from autotune.values.outcome import CountedFlops, Lost, Measured
from children import WORKLOADS, ended_as, job_for
from factories import GIB, best_config, cpu_machine, measurement
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in, unstored_in

RUNS = (measurement(100.0), measurement(110.0), measurement(90.0))


def told_of(found):
    """What an answer with this arithmetic says of it."""
    settings = TrainingConfig.of({})
    best = best_config(settings, settings)
    evidence = best.evidence.model_copy(update={"arithmetic": found})
    return dict(facts(best.model_copy(update={"evidence": evidence}))).get("arithmetic")


@pytest.mark.parametrize(
    ("flops", "rate", "mfu"),
    [(1e6, 4e8, 0.25), (1e6, 1e8, 1.0), (1e6, 0.9e8, None), (None, 4e8, None), (1e6, None, None)],
)
def test_the_utilisation_is_the_flops_of_the_throughput_over_the_rate_of_products(flops, rate, mfu):
    found = CountedFlops(flops_per_sample=flops, number_format="bfloat16")
    arithmetic = used(found, RUNS, rate)
    assert arithmetic.mfu == mfu
    assert (told_of(arithmetic) is not None) is (mfu is not None)


@pytest.mark.parametrize(
    ("mfu", "percent"), [(0.996, "100"), (1.0, "100"), (0.994, "99"), (0.0000012, "0.00012")]
)
def test_the_utilisation_is_no_power_of_ten(mfu, percent):
    said = told_of(Arithmetic(mfu=mfu, number_format="bfloat16"))
    assert str(said).startswith(f"{percent} % of the matrix")
    assert str(said).endswith("bfloat16")


@pytest.mark.parametrize(
    ("name", "heavy"),
    [
        ("aten.mm.default", True),
        ("aten._foreach_mm.default", True),
        ("aten.convolution_backward.default", True),
        ("aten.mkldnn_rnn_layer.default", True),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", True),
        ("aten._fft_r2c.default", True),
        ("aten.linalg_eigh.default", True),
        ("flash_attn._flash_attn_forward.default", True),
        ("flex_attention", True),
        ("aten.linalg_vector_norm.default", False),
        ("aten.upsample_bilinear2d.vec", False),
        ("aten.lgamma.default", False),
        ("aten.embedding.default", False),
        ("aten._foreach_addcmul_.Scalar", False),
        ("aten.native_layer_norm_backward.default", False),
        ("profiler._record_function_enter_new.default", False),
    ],
)
def test_operators_that_may_compute_much_are_known_by_their_names(name, heavy):
    assert is_heavy(name) is heavy


MIB = 1 << 20
LEAK = [MIB * number for number in (100, 101, 102, 103, 104, 105, 106)]


def run(used, rate=100.0):
    """A process whose blocks, each of as many seconds, end with so many bytes in use."""
    one = measurement(rate)
    block = one.blocks[0]
    return replace(
        one, blocks=tuple(replace(block, noise=Noise(memory_bytes=count)) for count in used)
    )


def test_a_leak_is_told_by_its_slope():
    seconds = run(LEAK).blocks[0].seconds
    assert bytes_per_second([run(LEAK)] * 3) == pytest.approx(MIB / seconds)
    scattering = [number + (4096 if index % 2 else 0) for index, number in enumerate(LEAK)]
    assert bytes_per_second([run(scattering)] * 3) == pytest.approx(MIB / seconds, rel=0.01)


@pytest.mark.parametrize(
    "used",
    [
        [MIB * 100] * 7,
        [MIB * number for number in (100, 100, 100, 104, 104, 104, 104)],
        [MIB * number for number in (100, 130, 150, 160, 165, 167, 168)],
        [MIB * number for number in (100, 101, 102, 100, 101, 102, 100)],
        [MIB * 100 + 1024 * number for number in (0, 16, 24, 28, 36, 40)],
        [MIB * number for number in (100, 108, 103, 111, 99, 107, 110)],
        LEAK[:5],
        [None] * 7,
    ],
    ids=[
        *("steady", "a plateau", "the end of a warm-up", "a saw", "pages", "noise", "few blocks"),
        "unknown",
    ],
)
def test_what_is_no_steady_growth_is_not_told(used):
    assert bytes_per_second([run(used)] * 6) is None


def test_growth_of_a_process_in_three_is_chance():
    calm = run([MIB * 100] * 7)
    assert bytes_per_second([run(LEAK), calm, calm]) is None
    assert bytes_per_second([run(LEAK)] * 2) is None, "too few"
    assert bytes_per_second([run(LEAK), run(LEAK), run(LEAK), calm]) is not None


def answered(folder, growing, most=8 * GIB):
    """The answer of a search in which these batch sizes, of 8 and the faster 64, leak."""

    def timing(config, _):
        size = batch_of(config)
        used = LEAK if size in growing else [MIB * 100] * 7
        return Measured(run(used, 200.0 if size == 64 else 100.0))

    options = unstored_in(folder, "batch_size: [8, 64]\n", trials=2)
    last = events_of(options, ScriptedRunner(timing))[-1]
    assert isinstance(last, Answered)
    return last


def test_an_answer_says_by_how_much_it_grows_and_when_the_limit_is_reached(tmp_path):
    for growing in ([8, 64], [64], [8], []):
        last = answered(tmp_path / str(growing), growing)
        (line,) = (one for one in answer_lines(last) if one.startswith("  memory "))
        growth = last.best.constraints.memory.growth_per_hour
        assert (growth is not None) == bool(growing)
        if growth is not None:
            assert (growth.baseline is not None, growth.best is not None) == (
                8 in growing,
                64 in growing,
            )
        grows = "; it grows by " in line and " reaches the limit in " in line
        assert grows == (64 in growing), line
        assert ("with your settings" in line) == (8 in growing), line
        assert ("; with your settings it grows by " in line) == (growing == [8])


@pytest.mark.real
@pytest.mark.parametrize(("workload", "leaks"), [("keeps_tensors", True), ("plain", False)])
def test_a_real_training_that_keeps_tensors_is_seen(workload, leaks, tmp_path):
    plan = MeasurePlan(block_counts=(6,), precision=0.0, block_seconds=0.05, max_seconds=1.0)
    job = job_for(WORKLOADS / f"{workload}.py", task=Measure(plan))
    runs = []
    with SubprocessRunner(tmp_path / "inductor") as runner:
        for number in range(3):
            outcome = ended_as(Measured, runner.run(job, tmp_path / str(number)))
            runs.append(outcome.measurement)
    grows = bytes_per_second(runs)
    assert (grows is not None) == leaks, [
        [block.noise.memory_bytes for block in run.blocks] for run in runs
    ]
    if grows is not None:
        steps = [(r.samples_per_second / 8) for r in runs]
        assert grows == pytest.approx((1 << 16) * sorted(steps)[1], rel=0.5)


def in_proportion(config, phase):
    return at(100.0 * batch_of(config) / 8)


def answer_of(folder, runner, trials=5):
    events_of(options_in(folder, trials=trials), runner)
    return read_best(folder / "best.yaml")


def tasks(runner):
    return [job.task for job in runner.jobs if isinstance(job.task, CountFlops)]


@pytest.mark.parametrize("outcome", [Lost("the process died"), CountedFlops()])
def test_where_it_cannot_be_counted_there_is_none(tmp_path, outcome):
    runner = ScriptedRunner(in_proportion, counts=lambda task: outcome)
    assert answer_of(tmp_path, runner).evidence.arithmetic is None


def test_the_rate_of_products_is_measured_once_for_a_study(tmp_path):
    def counts(task):
        rate = None if "float32" in task.known_formats else 4e9
        return CountedFlops(1e6, "float32", matmul_flops_per_second=rate)

    first = ScriptedRunner(in_proportion, counts=counts)
    found = answer_of(tmp_path, first, trials=4).evidence.arithmetic
    assert found.matmul_flops_per_second == 4e9
    again = ScriptedRunner(in_proportion, counts=counts)
    continued = answer_of(tmp_path, again, trials=5).evidence.arithmetic
    assert continued.matmul_flops_per_second == 4e9
    assert [task.known_formats for task in (*tasks(first), *tasks(again))] == [(), ("float32",)]
    threads = cpu_machine().default_num_threads
    assert {task.machine_threads for task in (*tasks(first), *tasks(again))} == {threads}
