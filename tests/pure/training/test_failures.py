"""An error of a GPU's libraries is known by its message."""

import pytest

from autotune.training.failures import classify
from autotune.values.outcome import OutOfMemory, Rejected, UserError


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "GET was unable to find an engine to execute this computation",
        "FIND was unable to find an engine to execute this computation",
        "Unable to find a valid cuDNN algorithm to run convolution",
    ],
)
def test_a_library_that_gets_no_memory_says_so_in_other_words(text):
    found = classify(RuntimeError(text), None, 1000)
    assert found == OutOfMemory("device", f"{text} (mostly for lack of memory)", 1000)


def test_a_kernel_that_is_too_large_for_the_device_is_the_configurations_fault():
    text = "out of resource: shared memory, Required: 262144, Hardware limit: 232448."
    found = classify(RuntimeError(text), None, None)
    assert found == Rejected(f"torch.compile failed: {text}")


def test_other_errors_of_the_device_stay_the_users():
    found = classify(RuntimeError("CUDA error: device-side assert triggered"), None, None)
    assert isinstance(found, UserError)
