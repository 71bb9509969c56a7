"""What one decoder layer keeps for its backward pass, and needs while it computes: bytes for each token.

Counted by hand from the operations of transformers 5.24, PEFT 0.21 and torch 2.13 under autocast; nothing is fitted.
What torch keeps of an operation is in its derivatives.yaml, what autocast casts in aten/src/ATen/autocast_mode.h.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ftui.estimate.setup import TrainingSetup
from ftui.estimate.trained import adapts_experts
from ftui.models.shape import DecoderLayer, ModelShape

FP32 = 4
# Paths of what reads the normed residual, the attention's result, and the result of the activation function.
AFTER_ATTENTION = ("o_proj", "dense", "attn.c_proj")
AFTER_MLP = ("down_proj", "fc2", "mlp.c_proj", "dense_4h_to_h")
FUSED = ("qkv_proj", "c_attn", "query_key_value")


@dataclass(frozen=True)
class LayerBytes:
    """Of one layer. All but `fixed` are for each token.

    Attributes:
        saved: kept for the backward pass.
        forward: most that comes on top of it while the layer computes, without what is kept.
        backward: most that comes on top of it in its backward pass.
        multiplying: what comes on top of it in the backward pass while such a weight is needed.
        fixed: most that the weights need while they are used (dequantised, or multiplied out for DoRA).
        unforgotten: what is kept even where activations are forgotten: inputs of 8-bit layers, which bitsandbytes 0.50
            holds by itself (MatMul8bitLt, `ctx.tensors`).
        copied: kept for the backward pass whatever the number of tokens: frozen float32 weights in the type of the
            arithmetic, of which autocast makes a copy for each use.
        merged: the same, of experts with their adapters added.
    """

    saved: float
    forward: float
    backward: float
    multiplying: float
    fixed: int
    unforgotten: float = 0.0
    copied: int = 0
    merged: int = 0


def widens(setup: TrainingSetup) -> bool:
    """Whether 16 bits become 32 on the way: autocast gives a LayerNorm's result in float32, and a layer of bitsandbytes
    returns the type of its input, up to the residual stream."""
    return setup.is_quantised and setup.compute != FP32 and has_layer_norm(setup.shape)


def has_layer_norm(shape: ModelShape) -> bool:
    """torch's own LayerNorm; Cohere has written one."""
    return shape.norm == "layer" and shape.model_type != "cohere"


def is_norm(shape: ModelShape, path: str, size: int) -> bool:
    """Whether such a parameter of a layer is the scale of a norm over the whole width."""
    return size == shape.hidden_size and path.endswith(".weight") and not path.startswith("self_attn.")


def layer_bytes(
    setup: TrainingSetup, layer: DecoderLayer, ranks: Mapping[str, int], trained: frozenset[str], residual: int
) -> LayerBytes:
    """What a layer takes.

    Args:
        ranks: path: rank of the linear layers with an adapter.
        trained: paths of its own weights that are trained.
        residual: bytes of a number of the residual stream.
    """
    count = _LayerCount(setup, layer, ranks, trained, residual)
    saved = count.norms() + count.attention() + count.mlp() + count.linears()
    return LayerBytes(
        saved,
        count.forward(),
        count.backward(saved),
        count.at_down(),
        count.fixed(),
        count.unforgotten(),
        count.copied(),
        count.merged(),
    )


class _LayerCount:
    """What one layer takes, part by part: see `layer_bytes`."""

    def __init__(
        self,
        setup: TrainingSetup,
        layer: DecoderLayer,
        ranks: Mapping[str, int],
        trained: frozenset[str],
        residual: int,
    ) -> None:
        shape = setup.shape
        self.setup, self.layer, self.ranks, self.trained, self.residual = setup, layer, ranks, trained, residual
        self.shape, self.c, self.hidden = shape, setup.compute, shape.hidden_size
        self.inner = FP32 if widens(setup) else self.c  # what the feed-forward part computes in
        self.queries, self.keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.copies_inputs = not (setup.is_quantised or setup.is_fused)  # PEFT makes them float32, autocast 16 bits
        self.norms_trained = any("norm" in path or "ln_" in path for path in trained)

    def norms(self) -> float:
        """A float32 copy of the input (itself where it is float32) and a figure or two; what is scaled by a trained
        weight."""
        number = sum(1 for path, size in self.layer.others.items() if is_norm(self.shape, path, size))
        own = self.residual if self.shape.norm == "rms" else FP32
        return number * self._norm_bytes(self.hidden, own, self.shape.norm)

    def _norm_bytes(self, width: int, scaled: int, kind: str) -> float:
        if has_layer_norm(self.shape):
            return FP32 * width + 2 * FP32
        if kind == "layer":  # Cohere's: the difference to the mean is taken twice
            return 2 * FP32 * width + 2 * FP32 + (FP32 * width if self.norms_trained else 0)
        return FP32 * width + FP32 + (scaled * width if self.norms_trained else 0)

    def attention(self) -> float:
        """Queries, keys, values, and the result or the probabilities."""
        c, queries, keys, heads = self.c, self.queries, self.keys, self.shape.num_heads
        length = self.setup.length
        extra = self._qk_norms()
        if (
            self._has(FUSED) and self.shape.model_type != "gpt2" and not widens(self.setup)
        ):  # values are a view of all three, kept whole
            extra += c * (queries + keys)
        match self.setup.attention:
            case "flash":
                expanded = queries if self.setup.card.kind == "cpu" else keys
                return extra + c * (2 * queries + 2 * expanded) + FP32 * heads
            case "efficient":
                mask = c * -(-length // 16) * 16 if self.setup.has_mask else 0
                return extra + c * 4 * queries + FP32 * heads + mask
            case "eager":
                capped = c * heads * length if self.shape.model_type == "gemma2" else 0
                chances = heads * length * (FP32 + (c if c != FP32 else 0))
                return extra + c * 3 * queries + chances + capped
            case "math":
                return extra + FP32 * 3 * queries + FP32 * heads * length + (c * queries if c != FP32 else 0)

    def _qk_norms(self) -> float:
        paths = [path for path in self.layer.others if path.startswith("self_attn.") and "norm" in path]
        if not paths:
            return 0.0
        parts = 1 if self.shape.model_type in ("olmo2", "olmoe") else self.shape.num_heads + self.shape.num_kv_heads
        width = self.queries + self.keys
        return self._norm_bytes(width, self.c if self.shape.norm == "rms" else FP32, self.shape.norm) + FP32 * parts

    def mlp(self) -> float:
        """What the activation function and the gate keep; not what the way down reads."""
        c, shape = self.inner, self.shape
        if (experts := self.layer.experts) is not None:
            inner = experts.num_active * (4 * c * experts.width + 2 * c * self.hidden)
            share_between_ranks = self.layer.linears.get("mlp.shared_expert.gate_proj")
            return inner + (0 if share_between_ranks is None else 3 * c * share_between_ranks[1])
        if shape.is_gated:
            return 3 * c * shape.width
        if shape.activation == "gelu_new":  # written out in Python; its power is computed in float32
            return (3 * FP32 + c) * shape.width
        return c * shape.width

    def linears(self) -> float:
        """Inputs of linear layers that have an adapter or are trained, and what the adapters keep."""
        total = 0.0
        for group, width, given, is_kept in self._groups():
            total += self._inputs(group, width, given, is_kept)
        for path, rank in self.ranks.items():
            outputs = self.layer.linears[path][1]
            total += self.c * rank + (2 * self.c * outputs if self.setup.use_dora else 0)
        return total

    def _groups(self) -> Iterable[tuple[list[str], int, int, bool]]:
        """(paths, inputs, bytes of the input's type, whether it is kept anyway) of what reads the same tensor."""
        paths = self.layer.linears
        attention = [path for path in paths if path.endswith(AFTER_ATTENTION)]
        down = [path for path in paths if path.endswith(AFTER_MLP) and path not in attention]
        normed = self._normed()
        first = [p for p in paths if p not in attention and p not in down and "mlp" not in p]
        second = [p for p in paths if p not in attention and p not in down and "mlp" in p]
        is_parallel = not any(path.startswith(("post_", "ln_2", "pre_feed")) for path in self.layer.others)
        for group in ([*first, *second],) if is_parallel else (first, second):
            yield group, self.hidden, normed, False
        yield attention, self.queries, self.c, self.setup.attention in ("flash", "efficient")
        after = FP32 if self.shape.activation == "gelu_new" else self.inner
        for path in down:
            yield [path], paths[path][0], after, False

    def _normed(self) -> int:
        if has_layer_norm(self.shape):
            return FP32
        widened = self.shape.norm == "rms" and self.norms_trained and self.setup.trained == FP32
        return FP32 if widened else self.residual

    def _inputs(self, group: list[str], width: int, given: int, is_kept: bool) -> float:
        c, setup = self.c, self.setup
        adapted = [path for path in group if path in self.ranks]
        whole = [path for path in group if f"{path}.weight" in self.trained]
        copies, shares = 0.0, setup.is_8bit and bool(group)
        if setup.lora_dropout and adapted:  # each drops by itself, and keeps a mask of bytes
            copies += len(adapted) * (c + 1)
        elif adapted and c != FP32 and (self.copies_inputs or given != c):
            copies += len(adapted) * c
        elif adapted:
            shares = True
        if whole and given != c:
            copies += len(whole) * c
        elif whole:
            shares = True
        return width * (copies + (c if shares and not is_kept else 0))

    def _has(self, ends: tuple[str, ...]) -> bool:
        return any(path.endswith(ends) for path in self.layer.linears)

    def forward(self) -> float:
        """The widest moment: the way down with its input, or the attention's scores."""
        c, width = self.c, self._width()
        around_up = 3 if self.setup.is_fused and self._adapted(AFTER_MLP) else 4  # the base's and its adapter's
        down = around_up * c * width if self.shape.is_gated else 3 * FP32 * width
        if self._adapted(AFTER_MLP) and self.copies_inputs and c != FP32:
            # beside the gate's result the way up makes three, with its input in float32
            down += FP32 * (self.hidden if self.shape.is_gated else width)
        scores = self.shape.num_heads * self.setup.length
        if self.setup.attention == "eager":
            return max(down, scores * (2 * c + FP32 + c)) + 2 * self.residual * self.hidden
        if self.setup.attention == "math":
            return max(down, scores * (2 * FP32 + 1)) + 2 * self.residual * self.hidden
        return max(down, c * (2 * self.queries + 2 * self.keys)) + 2 * self.residual * self.hidden

    def backward(self, saved: float) -> float:
        """The widest moment of it, over what is saved: around the activation function, or around the probabilities,
        when what the feed-forward part has kept is gone."""
        c, width = self.inner, self._width()
        down_input = c * width if self._learns(AFTER_MLP) else 0  # gone when the gate's product is differentiated
        around = (3 * c if self.shape.is_gated else 2 * c) * width - down_input
        if self.shape.activation == "gelu_new":
            around = max(around, 3 * FP32 * width)
        scores = self.shape.num_heads * self.setup.length
        match self.setup.attention:  # softmax: gradient, CUDA's gradient x output, result
            case "eager":
                attending = scores * (3 * FP32 - (self.c if self.c != FP32 else 0))
            case "math":
                attending = scores * 3 * FP32
            case _:
                attending = self.queries * (FP32 + 4 * self.c)
        first = next(iter(self._groups()))
        left = self.norms() / 2 + self.attention() + self._inputs(*first) - saved
        return max(around, left + attending + self.residual * self.hidden, self.at_down())

    def at_down(self) -> float:
        """Gradients of what the way down reads: one of the base and, unfused, one of the adapter before both are
        added."""
        c, width = self.inner, self._width()
        if self._adapted(AFTER_MLP) and self.copies_inputs and c != FP32:
            return (2 * c + FP32) * width
        return (2 if self._adapted(AFTER_MLP) and not self.setup.is_fused else 1) * c * width

    def unforgotten(self) -> float:
        """Each tensor that 8-bit layers read, once, and a figure for each of them."""
        if not self.setup.is_8bit:
            return 0.0
        return sum(self.c * width for group, width, _, _ in self._groups() if group) + FP32 * len(self.layer.linears)

    def merged(self) -> int:
        return self.c * self.layer.num_stacked if adapts_experts(self.setup) else 0  # by PEFT

    def copied(self) -> int:
        if self.setup.is_quantised or self.setup.storage == self.c or self.c == FP32:
            return 0
        not_kept = self.ranks if self.setup.is_fused else ()  # a fused layer casts its base anew for the way back
        frozen = (
            sizes
            for path, sizes in self.layer.linears.items()
            if f"{path}.weight" not in self.trained and path not in not_kept
        )
        return self.c * sum(inputs * outputs for inputs, outputs in frozen)

    def _width(self) -> float:
        experts = self.layer.experts
        return self.shape.width if experts is None else experts.num_active * experts.width

    def _learns(self, ends: tuple[str, ...]) -> bool:
        return self._adapted(ends) or any(path.removesuffix(".weight").endswith(ends) for path in self.trained)

    def _adapted(self, ends: tuple[str, ...]) -> bool:
        return any(path.endswith(ends) for path in self.ranks)

    def fixed(self) -> int:
        sizes = [inputs * outputs for inputs, outputs in self.layer.linears.values()]
        dequantised = max(sizes) * self.c if self.setup.is_quantised else 0
        if not self.setup.use_dora:
            return dequantised
        # A is multiplied out with B by way of an identity; then the weight, the product, the same scaled, and the sum
        own = self.c if self.setup.is_quantised else FP32
        narrow = self.c if self.c != FP32 else 0
        made = [
            max(
                (FP32 + narrow) * inputs**2 + 2 * self.c * inputs * outputs,
                narrow * inputs**2 + 4 * own * inputs * outputs,
            )
            for inputs, outputs in (self.layer.linears[path] for path in self.ranks)
        ]
        return dequantised + max(made, default=0)
