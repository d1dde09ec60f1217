"""Functions without code of their own: success where that changes nothing, else an error."""

from tests.null_gpu.build import DEVICE, PRELOADED
from tests.null_gpu.stubs import DRIVER, RUNTIME, generate, modelled


def test_success_or_an_error_that_is_counted() -> None:
    text = generate({"cudaSetDevice", "cudaGraphLaunch", "ncclSend", "cudnnGetVersion"}, RUNTIME)
    assert "int cudaSetDevice() { return 0; }" in text
    assert 'null_gpu_count("unmodelled", "cudaGraphLaunch");\n  return 801;' in text
    assert 'null_gpu_count("unmodelled", "ncclSend");\n  return 5;' in text
    assert "cudnnGetVersion" not in text  # which returns no status
    assert "null_gpu_count" not in generate((), DRIVER)


def test_nothing_is_both_modelled_and_generated() -> None:
    preloaded = modelled(DEVICE / f"{name}.cc" for name in PRELOADED)
    assert {"cudaMalloc", "cublasLtMatmul", "ncclAllReduce", "cudaStreamGetCaptureInfo"} < preloaded
    assert not preloaded & RUNTIME
    driver = modelled([DEVICE / "driver.cc"])
    assert "cuLaunchKernel" in driver and not driver & DRIVER
