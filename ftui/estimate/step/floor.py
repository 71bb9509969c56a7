"""The least time that the parts of a step could take: operations over the rate of matrix products, bytes over the
bandwidth, both as measured on the machine. In closed form, of real tokens: padding is time that could be saved.

Each pass over memory is counted as one kernel would make it: a norm reads its input and writes its result, and in the
backward pass reads input and gradient and writes one. What no step needs has the floor 0: copies, idle time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ftui.estimate.activations import is_norm
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.states import gradient_bytes, moment_bytes
from ftui.estimate.step.step_profile import Kind, StepProfile
from ftui.estimate.timing import UPDATE_BYTES
from ftui.estimate.trained import TrainedWeights, find_trained
from ftui.models.shape import DecoderLayer

NF4_BYTES = 0.5
NORM, ADDITION, ROTARY = 2 + 3, 3 + 3, 2 + 2
GATED, PLAIN = 3 + 5, 2 + 3
"""Numbers read and written for each element in the forward and in the backward pass: by a norm, by an addition to the
residual stream, by the rotation of queries and keys, by a gated and by a plain activation function."""


def find_floors(setup: TrainingSetup, step: StepProfile) -> dict[Kind, float]:
    """Seconds of a mean step, of each kind of work whose floor is known."""
    trained, rate, memory = find_trained(setup), step.product_rate, step.bandwidth
    passes = 1 if setup.checkpointing is None else 1 + 0.5 / setup.checkpointing  # over forward and backward
    per_token = {kind: count * setup.compute * passes for kind, count in _numbers_per_token(setup).items()}
    gradients, moments = gradient_bytes(setup, trained), moment_bytes(setup, trained)
    floors: dict[Kind, float] = {
        "products": product_operations(setup, trained, step.num_computed, step.num_targets) / rate,
        "attention": attention_operations(setup, step.lengths) / step.num_steps / rate,
        "norms": (per_token["norms"] * step.num_computed + _logit_bytes(setup) * step.num_targets) / memory,
        "elementwise": per_token["elementwise"] * step.num_computed / memory,
        "copies": 0.0, "data": 0.0, "between": 0.0,
        "optimizer": UPDATE_BYTES / 2 * (2 * gradients + moments) / memory,
    }  # fmt: skip
    if setup.is_quantised and not setup.is_8bit:
        weights = sum(layer.num_linear for layer in setup.shape.layers)
        floors["dequantise"] = 2 * passes * step.num_micro_batches * weights * (NF4_BYTES + setup.compute) / memory
    return floors


def model_operations(setup: TrainingSetup, step: StepProfile) -> float:
    """Operations that a mean step needs, none of them twice: what MFU counts."""
    once = setup if setup.checkpointing is None else replace(setup, checkpointing=None)
    products = product_operations(once, find_trained(once), step.num_computed, step.num_targets)
    return products + attention_operations(once, step.lengths) / step.num_steps


def product_operations(setup: TrainingSetup, trained: TrainedWeights, tokens: float, targets: float) -> float:
    """Of the matrix products of a step: 2 for each weight that a token meets in the forward pass, as many for the
    gradient of its input above the lowest trained weight, as many for that of a trained weight. Only positions that
    predict a target go through the head."""
    shape = setup.shape
    again = 0.0 if setup.checkpointing is None else 1 / setup.checkpointing
    lowest, per_token = _lowest_trained(setup, trained), (3 + again) * trained.num_adapter
    for number, layer in enumerate(shape.layers):
        matrices = {f"{path}.weight": inputs * outputs for path, (inputs, outputs) in layer.linears.items()}
        if layer.experts is not None:  # of them only those that a token goes through
            share = layer.experts.num_active / layer.experts.num
            matrices |= {path: round(share * size) for path, size in layer.others.items() if ".experts." in path}
        for path, size in matrices.items():
            is_first = bool(trained.ranks[number]) and _reads_input(path)  # of an adapter's layer, nothing before it
            has_trained_below = number > lowest or (number == lowest and not is_first)
            is_trained = f"{shape.stack}.{number}.{path}" in trained.base
            per_token += size * (1 + again + has_trained_below + is_trained)
    head = shape.num_outputs * shape.hidden_size
    ends = {f"{shape.embeddings if shape.tied else shape.head}.weight"}
    return 2 * (tokens * per_token + targets * head * (2 + bool(ends & (trained.base.keys() | trained.copied.keys()))))


def _reads_input(path: str) -> bool:
    """Whether a matrix reads the input of its layer, which needs no gradient where nothing below is trained."""
    return path.startswith("self_attn.") and path.split(".")[1][:2] in ("q_", "k_", "v_", "qk")


def _lowest_trained(setup: TrainingSetup, trained: TrainedWeights) -> int:
    """The number of the lowest layer with a trained weight, -1 where the embeddings are trained."""
    shape = setup.shape
    end = f"{shape.embeddings}.weight"
    if end in trained.base or end in trained.copied or shape.embeddings in trained.adapted_ends:
        return -1
    starts = [f"{shape.stack}.{number}." for number in range(shape.num_layers)]
    own = {start for start in starts if any(name.startswith(start) for name in (*trained.base, *trained.copied))}
    trains = (bool(ranks) or start in own for ranks, start in zip(trained.ranks, starts, strict=True))
    return next((number for number, is_trained in enumerate(trains) if is_trained), shape.num_layers)


def attention_operations(setup: TrainingSetup, lengths: Sequence[int]) -> float:
    """Of scores and their sums, in sequences of these lengths: 4 for each pair of a query with a key it may see and
    each number of the heads, twice as many in the backward pass."""
    shape, total = setup.shape, 0.0
    for layer in shape.layers:
        for length in lengths:
            seen = min(length, layer.window or length)
            total += length * seen - seen * seen / 2
    again = 0.0 if setup.checkpointing is None else 1 / setup.checkpointing
    return 4.0 * shape.num_heads * shape.head_dim * total * (3 + again)


def _numbers_per_token(setup: TrainingSetup) -> Mapping[Kind, float]:
    """Numbers that norms and element-wise work read and write, forward and backward."""
    shape = setup.shape
    heads = (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    norms, elementwise = NORM * float(shape.hidden_size), 0.0  # the last norm
    for layer in shape.layers:
        norms += NORM * shape.hidden_size * sum(is_norm(shape, path, size) for path, size in layer.others.items())
        norms += NORM * heads * any(path.startswith("self_attn.") and "norm" in path for path in layer.others)
        elementwise += 2 * ADDITION * shape.hidden_size + ROTARY * heads
        elementwise += (GATED if shape.is_gated else PLAIN) * _inner_width(setup, layer)
    return {"norms": norms, "elementwise": elementwise}


def _inner_width(setup: TrainingSetup, layer: DecoderLayer) -> float:
    experts = layer.experts
    return setup.shape.width if experts is None else experts.num_active * experts.width


def _logit_bytes(setup: TrainingSetup) -> float:
    """For each target the logits are read once and their gradient is written once."""
    return 2.0 * setup.compute * setup.shape.num_outputs
