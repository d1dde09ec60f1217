"""oneDNN's products equal `F.linear`'s, and serve float32 inference on a CPU alone."""

from typing import Literal

import pytest
import torch
import torch.nn.functional as F

from model import linear as linear_module
from model.linear import Linear, LinearGelu, linear

with_onednn = pytest.mark.skipif(not linear_module.HAS_ONEDNN, reason="this torch has no oneDNN")


@with_onednn
@pytest.mark.parametrize("bias", [True, False])
def test_products_equal_those_of_torch(bias: bool) -> None:
    """Within ten rounding errors of float32 in a sum of 64, also of a strided slice."""
    torch.manual_seed(0)
    layer = Linear(64, 96, bias=bias)
    for shape in ((64,), (2, 3, 64), (0, 64), (1, 1, 64)):
        for given in (torch.randn(shape), torch.randn(*shape[:-1], 128)[..., ::2]):
            with torch.no_grad():
                assert linear_module._suits_onednn(given, layer.weight)
                ours = layer(given)
            expected = F.linear(given, layer.weight, layer.bias).detach()
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@with_onednn
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_gelu_in_one_operator_equals_torch_s(activation: Literal["gelu", "gelu_tanh"]) -> None:
    """Over the range in which it bends; the two approximations differ by more, up to 5e-4."""
    torch.manual_seed(0)
    layer, given = LinearGelu(64, 96, activation), 3 * torch.randn(50, 64)
    with torch.no_grad():
        ours = layer(given)
    recorded = layer(given)
    assert recorded.requires_grad
    approximate = {"gelu": "none", "gelu_tanh": "tanh"}[activation]
    expected = F.gelu(F.linear(given, layer.weight, layer.bias), approximate=approximate)
    torch.testing.assert_close(recorded, expected, rtol=0, atol=0)
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-5, atol=1e-5)


def test_gradients_and_bfloat16_use_f_linear() -> None:
    layer, given = Linear(8, 4), torch.ones(2, 8)
    assert layer(given).requires_grad
    with torch.no_grad():
        half = linear(given.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16())
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(given).dtype == half.dtype == torch.bfloat16
        assert linear(given.to("meta"), layer.weight.to("meta"), None).device.type == "meta"
