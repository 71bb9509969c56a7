"""Which kind an operation is taken for."""

import pytest

from ftui.engine.profile_step.op_kinds import ATEN, kind_in, kind_of, kind_of_kernel
from ftui.estimate.step.step_profile import KINDS, Kind

OPERATIONS: list[tuple[str, Kind]] = [
    ("aten::mm", "products"), ("aten::addmm_", "products"), ("aten::bmm", "products"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
    ("aten::_efficient_attention_forward", "attention"), ("flash_attn::_flash_attn_forward", "attention"),
    ("aten::add", "elementwise"), ("aten::add_", "elementwise"), ("aten::silu_backward", "elementwise"),
    ("aten::_softmax", "norms"), ("aten::_log_softmax_backward_data", "norms"), ("aten::sum", "norms"),
    ("aten::copy_", "copies"), ("aten::_to_copy", "copies"), ("aten::index_put_", "copies"), ("aten::cat", "copies"),
    ("aten::t", "between"), ("aten::transpose", "between"), ("aten::as_strided", "between"),
    ("aten::to", "copies"), ("aten::tanh", "elementwise"), ("aten::topk", "norms"),
    ("bitsandbytes::dequantize_4bit", "dequantise"), ("bitsandbytes::gemm_4bit", "products"),
    ("c10d::allreduce_", "collectives"), ("record_param_comms", "collectives"), ("nccl:all_reduce", "collectives"),
    ("autograd::engine::evaluate_function: MulBackward0", "between"), ("torch::autograd::AccumulateGrad", "between"),
    ("MulBackward0", "between"), ("LoraProduct", "between"), ("ftui::forward", "between"),
    ("aten::multinomial", "other"), ("aten::addmore", "other"), ("somebody::operation", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), OPERATIONS)
def test_an_operation_is_known_by_its_longest_known_beginning(name: str, kind: Kind) -> None:
    assert kind_of(name) == kind


KERNELS: list[tuple[str, str, Kind]] = [
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn", "aten::addmm", "products"),
    ("void at::native::vectorized_elementwise_kernel<4, ...>", "aten::copy_", "copies"),  # its operation knows better
    ("void at::native::vectorized_elementwise_kernel<4, ...>", "", "elementwise"),
    ("_rms_norm_forward_kernel", "LigerRMSNormFunction", "norms"), ("_swiglu_forward_kernel", "", "elementwise"),
    ("triton_red_fused_mean_pow_0", "## Call CompiledFxGraph f ##", "norms"),
    ("triton_poi_fused_mul_1", "", "elementwise"),
    ("Memcpy HtoD (Pinned -> Device)", "aten::copy_", "copies"), ("Memset (Device)", "", "copies"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "record_param_comms", "collectives"),
    ("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>", "", "dequantise"),
    ("somebody_s_own", "", "other"), ("somebody_s_own", "aten::view", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "kind"), KERNELS)
def test_a_kernel_is_what_launched_it_else_its_own_name(name: str, op: str, kind: Kind) -> None:
    assert kind_of_kernel(name, op) == kind


def test_no_name_is_of_two_kinds() -> None:
    names = [name for listed in ATEN.values() for name in listed.split()]
    assert len(names) == len(set(names))


def test_arithmetic_of_an_update_is_the_optimizers() -> None:
    assert {kind for kind in KINDS if kind_in("update", kind) == "optimizer"} == {
        "products", "norms", "elementwise", "copies", "dequantise", "optimizer",
    }  # fmt: skip
    assert all(kind_in("backward", kind) == kind for kind in KINDS)
