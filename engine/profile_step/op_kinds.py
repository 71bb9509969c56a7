"""Which kind of work an operation is, by its name in torch's profiler. What no table knows is "other", never left out.

Operations of the dispatcher (`aten::addmm`) are looked up by the longest known beginning that ends at a word's end, so
that `aten::mul` is `aten::mul_` too, but not `aten::multinomial`. A GPU's kernels are what the operation that launched
them is; only where that says nothing (a Triton kernel that Python launches) their own names are searched.
"""

import re
from functools import lru_cache

from ftui.estimate.step.step_profile import Kind, Phase

OF_UPDATE: tuple[Kind, ...] = ("products", "norms", "elementwise", "copies", "dequantise")
ATEN: dict[Kind, str] = {
    "products": """
        mm addmm bmm baddbmm matmul linear linear_backward mv addmv dot einsum tensordot outer _scaled_mm
        _grouped_mm _int_mm _addmm_activation mkldnn_linear mkldnn_convolution conv1d conv2d convolution
        _convolution""",
    "attention": """
        scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math _scaled_dot_product_fused_attention
        _flash_attention _efficient_attention _cudnn_attention _fused_sdp_choice""",
    "norms": """
        rms_norm _fused_rms_norm layer_norm native_layer_norm softmax _softmax log_softmax _log_softmax nll_loss
        cross_entropy_loss logsumexp sum mean var var_mean std amax amin aminmax _aminmax max min prod norm
        linalg_vector_norm _linalg_vector_norm _foreach_norm argmax argmin topk sort argsort cumsum any all
        count_nonzero bincount histc unique _unique2 isfinite isnan _amp_foreach_non_finite_check_and_unscale""",
    "elementwise": """
        add sub rsub mul div diff pow neg abs sign exp exp2 log log1p sqrt rsqrt reciprocal square sin cos tanh erf
        sigmoid silu gelu relu softplus threshold clamp maximum minimum where masked_fill lerp addcmul addcdiv floor
        ceil round remainder eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
        bitwise_not dropout native_dropout bernoulli rand randn rand_like randn_like uniform normal tril triu isin
        _foreach_add _foreach_mul _foreach_div _foreach_sub _foreach_sqrt _foreach_lerp _foreach_addcmul
        _foreach_addcdiv _foreach_neg _foreach_pow _foreach_maximum _foreach_sign _fused_adamw _fused_adam
        _fused_sgd _fused_adagrad __and__ __or__""",
    "copies": """
        copy _to_copy to type_as clone contiguous cat stack repeat repeat_interleave index _index_put_impl gather
        scatter take embedding slice_backward select_backward slice_scatter select_scatter masked_select nonzero
        masked_scatter roll flip pad constant_pad_nd zero fill zeros ones full zeros_like ones_like full_like
        new_zeros new_full new_ones new_tensor arange scalar_tensor pin_memory _pin_memory _foreach_copy
        _foreach_zero item _local_scalar_dense one_hot""",
    "between": """
        view view_as _unsafe_view reshape _reshape_alias t numpy_T transpose permute movedim expand expand_as
        squeeze unsqueeze slice select narrow split split_with_sizes chunk unbind unfold flatten unflatten detach
        alias as_strided empty empty_like empty_strided new_empty new_empty_strided resize set lift_fresh
        result_type resolve_conj resolve_neg is_nonzero broadcast_tensors record_stream
        _has_compatible_shallow_copy_type""",
}  # fmt: skip
"""Names of ATen's operations. "between" holds those that touch no numbers: views, and room for a result."""

ELSEWHERE: dict[str, Kind] = {
    "bitsandbytes::dequantize": "dequantise",
    "bitsandbytes::quantize": "dequantise",
    "bitsandbytes::int8_vectorwise": "dequantise",
    "bitsandbytes::int8_double_quant": "dequantise",
    "bitsandbytes::int8_mm_dequant": "dequantise",
    "bitsandbytes::int8_linear_matmul": "products",
    "bitsandbytes::gem": "products",
    "bitsandbytes::optimizer_update": "optimizer",
    "mkldnn::": "products",
    "onednn::": "products",
    "flash_attn": "attention",
    "c10d::": "collectives",
    "nccl:": "collectives",
    "gloo:": "collectives",
    "record_param_comms": "collectives",
    "autograd::": "between",
    "torch::autograd::": "between",
    "profiler::": "between",
    "ftui::": "between",
    "## Call CompiledFxGraph": "elementwise",  # on a CPU inductor's own loops; its products are operations inside
    "CompiledFunction": "elementwise",
}
"""Beginnings of all other names; the longest counts."""

KERNELS: tuple[tuple[str, Kind], ...] = (
    ("nccl|rccl", "collectives"),
    ("flash|fmha|attention|sdpa", "attention"),
    ("quantize", "dequantise"),
    ("optimizer|adam|multi_tensor", "optimizer"),
    ("gemm|gemv|cutlass|xmma|nvjet|cublas|splitk", "products"),
    ("norm|softmax|cross_entropy|reduce|triton_red|triton_per", "norms"),
    ("memcpy|memset|copy|catarray|gather|scatter|embedding|index", "copies"),
    ("elementwise|triton_poi|swiglu|geglu|rope|rotary|dropout", "elementwise"),
)  # fmt: skip
"""Parts of the names of kernels; the first match counts."""

_ATEN = {name: kind for kind, names in ATEN.items() for name in names.split()}
_WORD_ENDS = re.compile(r"(?=_|\.|$)")


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind:
    """The kind of an operation, or of a range that Python has marked (a node of autograd): its time between those."""
    space, _, own = name.rpartition("::")
    if space == "aten":
        beginnings = [own[: match.start()] for match in _WORD_ENDS.finditer(own)]
        return next((_ATEN[start] for start in reversed(beginnings) if start in _ATEN), "other")
    known = [start for start in ELSEWHERE if name.startswith(start)]
    return ELSEWHERE[max(known, key=len)] if known else "other" if space else "between"


@lru_cache(maxsize=4096)
def kind_of_kernel(name: str, op: str) -> Kind:
    """The kind of a GPU's kernel, copy or fill, launched by an operation ("": by none that is known)."""
    if "::" in op and (kind := kind_of(op)) not in ("between", "other"):
        return kind
    return next((kind for part, kind in KERNELS if re.search(part, name, re.IGNORECASE)), "other")


def kind_in(phase: Phase, kind: Kind) -> Kind:
    """The kind of work in a phase: all arithmetic and all copies of the update are the optimizer's."""
    return "optimizer" if phase == "update" and kind in OF_UPDATE else kind
