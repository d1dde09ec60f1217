"""The counts of the null GPU, as its C++ writes them."""

import pytest

from tests.null_gpu.ledger import check_modelled, read

TEXT = "\n".join(
    (
        "kernel\tvoid pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64> >(x)\t12",
        "kernel\tvoid pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<y>(x)\t12",
        "kernel\tvoid pytorch_flash::flash_bwd_dot_do_o_kernel<y>(x)\t12",
        "kernel\tfmha_cutlassF_bf16_aligned_64x64_rf_sm80(z)\t2",
        "kernel\tfmha_cutlassB_bf16_aligned_64x64_k64_dropout_sm80(z)\t1",
        "kernel\tcudnn graph of 2 products\t3",
        "kernel\tcudnn graph of 5 products\t4",
        "kernel\ttriton_per_fused_add_0\t7",
        "product\tbf16 10 20 30 x1\t2",
        "product\tfp32 2 2 2 x4\t1",
        "collective\tall_reduce fp32 400\t2",
        "wait\tcudaStreamSynchronize\t5",
    )
)


def test_what_is_read() -> None:
    counts = read(TEXT)
    assert counts.attention == {
        "cudnn": (3, 4), "flash": (12, 12), "memory_efficient": (2, 1),
    }  # fmt: skip
    assert counts.kernels == {"triton": 7, "attention": 34, "products": 3, "other": 12}
    assert counts.product_flops == 2 * 2 * 10 * 20 * 30 + 4 * 2 * 8
    assert counts.collectives == [{"kind": "all_reduce", "dtype": "fp32", "bytes": 400, "count": 2}]
    assert counts.total("wait") == 5 and counts.total("copy") == 0
    check_modelled(counts)


def test_a_call_without_a_model_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not model cudaGraphLaunch"):
        check_modelled(read("unmodelled\tcudaGraphLaunch\t1"))
