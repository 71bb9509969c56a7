"""What stays in memory between steps, in bytes: weights, constants of quantised ones, gradients, optimizer moments.

What of it each of several processes has, and what lies in host memory: ftui/estimate/placement/.
"""

from collections.abc import Iterator

from ftui.estimate.setup import TrainingSetup
from ftui.estimate.trained import TrainedWeights
from ftui.models.shape import ModelShape

FP32 = 4
BLOCK, NESTED_BLOCK, CODES, FOUR_BIT_CODES = 64, 256, 256, 16  # bitsandbytes 0.50: Params4bit, quantize_4bit
# bitsandbytes 0.50: blocks of moments that share a float32; weights of fewer elements keep float32 moments
MOMENT_BLOCK, LEAST_8BIT = 256, 4096
SLICE_BYTES = 256 << 20  # engine/offload/host_state.py

# Moments of each optimizer for an element, and how each is held: of the weight's type, in float32, in 8 bits.
MOMENTS: dict[str, tuple[int, str]] = {
    "adamw_torch": (2, "own"), "adamw_torch_fused": (2, "own"), "adamw_8bit": (2, "8"), "adamw_bnb_8bit": (2, "8"),
    "paged_adamw_8bit": (2, "8"), "paged_adamw_32bit": (2, "32"), "adagrad": (1, "own"),
    "rmsprop_bnb": (1, "32"), "rmsprop_bnb_8bit": (1, "8"), "rmsprop_bnb_32bit": (1, "32"),
    "lion_32bit": (1, "32"), "lion_8bit": (1, "8"), "paged_lion_32bit": (1, "32"), "paged_lion_8bit": (1, "8"),
    "ademamix": (3, "32"), "ademamix_8bit": (3, "8"), "paged_ademamix_32bit": (3, "32"),
    "paged_ademamix_8bit": (3, "8"),
}  # fmt: skip


def weight_bytes(setup: TrainingSetup, trained: TrainedWeights) -> tuple[int, int, int]:
    """(weights of the base, constants of quantised ones, adapters and modules trained beside the base)."""
    shape = setup.shape
    beside = FP32 * (trained.num_adapter + trained.num_copied)
    own = trained.num_base
    if not setup.is_quantised:
        return own * setup.trained + (shape.num_parameters - own) * setup.storage, 0, beside
    packed, constants, linear = 0, 0, 0
    for layer in shape.layers:
        for inputs, outputs in layer.linears.values():
            number = inputs * outputs
            linear += number
            packed += number if setup.is_8bit else -(-number // 2)
            constants += FP32 * outputs if setup.is_8bit else _constants(number, double=setup.double_quant)
    return packed + (shape.num_parameters - linear) * setup.storage, constants, beside


def _constants(number: int, *, double: bool) -> int:
    blocks = -(-number // BLOCK)
    if not double:
        return FP32 * (blocks + FOUR_BIT_CODES)
    return blocks + FP32 * (-(-blocks // NESTED_BLOCK) + CODES + FOUR_BIT_CODES + 1)


def gradient_bytes(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """All gradients: of the type of their weights."""
    return FP32 * (trained.num_adapter + trained.num_copied) + setup.trained * trained.num_base


def moment_bytes(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """The optimizer's state. Paged moments lie on the GPU while there is room, else with the host."""
    gradients = gradient_bytes(setup, trained)
    match setup.optim:
        case "sgd":
            return gradients * setup.momentum
        case "rmsprop":
            return gradients * (1 + setup.momentum + setup.centered)
        case "adafactor":
            return FP32 * sum(rows + columns if columns else rows for rows, columns in _matrices(setup, trained))
    number, kind = MOMENTS[setup.optim]
    if kind == "own":
        return number * gradients
    if kind == "32":
        return number * FP32 * trained.total
    whole = sum(elements for name, elements in _weights(trained) if _is_whole(setup.shape, name, elements))
    return number * round(whole * FP32 + (trained.total - whole) * (1 + FP32 / MOMENT_BLOCK))


def _is_whole(shape: ModelShape, name: str, elements: int) -> bool:
    """Whether a weight keeps float32 moments in an 8-bit optimizer, as small ones and embeddings do."""
    return elements < LEAST_8BIT or name == f"{shape.embeddings}.weight"


def _weights(trained: TrainedWeights) -> Iterator[tuple[str, int]]:
    yield from trained.base.items()
    yield from trained.copied.items()


def _matrices(setup: TrainingSetup, trained: TrainedWeights) -> Iterator[tuple[int, int]]:
    """(rows, columns) of what is trained; columns are 0 where it is a vector."""
    shape = setup.shape
    for layer, ranks in zip(shape.layers, trained.ranks, strict=True):
        for path, rank in ranks.items():
            inputs, outputs = layer.linears[path]
            yield rank, inputs
            yield outputs, rank
            if setup.use_dora:
                yield outputs, 0
    sizes = {f"{name}.weight": both for name, both in shape.linear_names()}
    ends = {shape.embeddings: shape.vocab_size, shape.head: shape.num_outputs}
    sizes |= {f"{name}.weight": (rows, shape.hidden_size) for name, rows in ends.items()}
    for name, elements in _weights(trained):
        yield sizes.get(name, (elements, 0))


def update_bytes(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """Temporaries of the optimizer's update.

    torch's work on all weights at once on a GPU (foreach: torch/optim, `_multi_tensor_*`), one by one elsewhere; fused
    ones and those of bitsandbytes need none.
    """
    if setup.optim == "adafactor":  # one weight after the other: its square, then the update
        return 2 * FP32 * largest(trained)
    if setup.optim not in ("adamw_torch", "adagrad", "rmsprop", "sgd"):
        return 0
    copies = {"adamw_torch": 1, "adagrad": 2, "rmsprop": 1 + setup.centered, "sgd": 0}[setup.optim]
    if setup.optim != "adamw_torch":
        copies += setup.weight_decay
    each = gradient_bytes(setup, trained) if setup.card.kind == "cuda" else FP32 * largest(trained)
    if "state" in setup.offload:
        each = min(each, slice_bytes(setup, trained))
    return copies * each


def slice_bytes(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """Weights that are updated together where the state is on the host (engine/offload/host_state.py)."""
    return min(gradient_bytes(setup, trained), max(SLICE_BYTES, FP32 * largest(trained)))


def moment_slice(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """The state of these weights, which comes for their update; nothing where all of it is on the device."""
    if "state" not in setup.offload or not (gradients := gradient_bytes(setup, trained)):
        return 0
    return round(moment_bytes(setup, trained) * slice_bytes(setup, trained) / gradients)


def largest(trained: TrainedWeights) -> int:
    """Elements of the largest trained weight (adapters are small beside any)."""
    return max((elements for _, elements in _weights(trained)), default=0)
