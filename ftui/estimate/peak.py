"""The wide moments of a training step and of an evaluation, and what each holds, in bytes.

While the head's chunks are computed (engine/objectives/chunked_head.py takes their gradients in the forward pass), at
the start and at the end of the backward pass, in the optimizer's update, while evaluating: one of them is the peak.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ftui.estimate.activations import FP32, LayerBytes, layer_bytes, widens
from ftui.estimate.placement.frozen_base import place_base
from ftui.estimate.placement.rank_share import share_between_ranks
from ftui.estimate.result import Phase
from ftui.estimate.setup import TrainingSetup
from ftui.estimate.states import gradient_bytes, moment_bytes, moment_slice, update_bytes, weight_bytes
from ftui.estimate.trained import TrainedWeights, find_trained
from ftui.hardware.devices import MiB
from ftui.models.logits import CHUNK_BYTES, PLAIN_HEADS

HOPPER = 90


@dataclass(frozen=True)
class MemoryPoint:
    """One wide moment: bytes by part, and those of what is there at every moment."""

    phase: Phase
    parts: dict[str, int]
    lasting: int

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())


def memory_points(setup: TrainingSetup) -> list[MemoryPoint]:
    """All wide moments of a setup."""
    return _WidePoints(setup, find_trained(setup)).all()


def saved_bytes(setup: TrainingSetup, trained: TrainedWeights) -> float:
    """Bytes that all layers would keep for the backward pass, for each token."""
    return sum(layer.saved for layer in _WidePoints(setup, trained).layers)


def stored_bytes(setup: TrainingSetup, trained: TrainedWeights) -> float:
    """Bytes that layers store on the host for each token, where they do."""
    if not setup.stores_on_host:
        return 0.0
    points = _WidePoints(setup, trained)
    inputs = points.residual * setup.shape.hidden_size
    kept = (min(inputs, layer.saved) if setup.forgets(n) else layer.saved for n, layer in enumerate(points.layers))
    return sum(kept)


class _WidePoints:
    """The wide moments of a step, and of an evaluation."""

    def __init__(self, setup: TrainingSetup, trained: TrainedWeights) -> None:
        self.setup, self.trained, shape = setup, trained, setup.shape
        self.tokens, self.c = setup.num_tokens, setup.compute
        self.head_trained = _is_trained(trained, shape.head) or (shape.tied and _is_trained(trained, shape.embeddings))
        self.embeddings_trained = _is_trained(trained, shape.embeddings)
        whole_head = not self.head_trained or not setup.is_lora  # PEFT would put it into a layer of its own
        has_plain_head = shape.model_type in PLAIN_HEADS and whole_head and shape.head not in trained.adapted_ends
        self.is_chunked = has_plain_head or shape.gives_scores
        self.residual = FP32 if widens(setup) else setup.trained if self.embeddings_trained else setup.storage
        self.layers = self._layers()
        weights, constants, adapters = weight_bytes(setup, trained)
        whole = gradient_bytes(setup, trained)
        per_rank = share_between_ranks(setup, weights, whole, moment_bytes(setup, trained), _largest_layer(setup))
        self.placement = place_base(setup, trained)
        self.static = {
            "weights": per_rank.weights - self.placement.away, "quantisation": constants, "adapters": adapters,
            "optimizer": 0 if setup.moments_on_host else per_rank.moments, "workspace": self._workspace(),
        }  # fmt: skip
        self.gradients, self.gathered = per_rank.gradients, per_rank.gathered

    def _layers(self) -> list[LayerBytes]:
        setup, counted, layers = self.setup, {}, []
        stack = f"{setup.shape.stack}."
        trained: dict[int, set[str]] = {}
        for name in self.trained.base:
            if name.startswith(stack):
                place, _, path = name.removeprefix(stack).partition(".")
                trained.setdefault(int(place), set()).add(path)
        first = self._first_trained(trained)
        for number, (layer, ranks) in enumerate(zip(setup.shape.layers, self.trained.ranks, strict=True)):
            own = frozenset(trained.get(number, ()))
            key = id(layer), tuple(ranks.items()), own
            if key not in counted:
                counted[key] = layer_bytes(setup, layer, ranks, own, self.residual)
            own_bytes = counted[key]
            layers.append(own_bytes if number >= first else LayerBytes(0, own_bytes.forward, 0, 0, own_bytes.fixed))
        return layers

    def _first_trained(self, trained: dict[int, set[str]]) -> int:
        """The first layer whose output depends on something trained: those before it keep nothing."""
        if self.embeddings_trained:
            return 0
        numbers = [n for n, ranks in enumerate(self.trained.ranks) if ranks or trained.get(n)]
        return min(numbers, default=self.setup.shape.num_layers)

    def _workspace(self) -> int:
        """cuBLAS takes some in each thread that multiplies: the forward pass's and autograd's."""
        if self.setup.card.kind != "cuda":
            return 0
        return 2 * (32 * MiB if self.setup.card.capability >= HOPPER else 8 * MiB + 128 * 1024)

    def all(self) -> list[MemoryPoint]:
        points = [self._at_head(), *self._backward(), self._update()]
        if (rows := self.setup.answered) is not None:
            points.append(self._answers("evaluation", rows.prompt_tokens, rows.new_tokens, self.setup.answers_at_once))
        if (sampled := self.setup.sampled) is not None:
            points.append(self._answers("generation", sampled.prompt_tokens, sampled.new_tokens, sampled.at_once))
        return [*points, self._evaluation()] if self.setup.evaluates_loss else points

    def _point(self, phase: Phase, work: Mapping[str, float] = MappingProxyType({}), **more: float) -> MemoryPoint:
        parts = {name: round(value) for name, value in self.static.items()}
        lasting = sum(parts.values())
        for name, value in (*work.items(), *more.items()):
            parts[name] = parts.get(name, 0) + round(value)
        return MemoryPoint(phase, parts, lasting)

    def _at_head(self) -> MemoryPoint:
        """The end of the forward pass: everything is kept, and the head computes."""
        waiting = self.gradients if self.setup.accumulation > 1 else 0
        waiting += self._head_gradient() if self.is_chunked else 0
        kept = self._kept()
        return self._point(
            "forward", self._head_work(self.tokens, is_training=True), gradients=waiting,
            activations=self._saved(kept) + self._ends(), gathered=self.placement.gathered("forward"),
            weights=self._copies_at_head() + self._copied(kept) + self.gathered,
        )  # fmt: skip

    def _kept(self) -> list[LayerBytes]:
        """Layers as they stand at the end of the forward pass; of a forgotten one only its input is kept."""
        input_bytes = self.residual * self.setup.shape.hidden_size
        if self.setup.stores_on_host:
            return [LayerBytes(layer.unforgotten, 0, 0, 0, 0) for layer in self.layers]
        return [
            LayerBytes(input_bytes + layer.unforgotten if layer.saved else 0, 0, 0, 0, 0)
            if self.setup.forgets(number)
            else layer
            for number, layer in enumerate(self.layers)
        ]

    def _saved(self, layers: Sequence[LayerBytes]) -> float:
        return sum(layer.saved for layer in layers) * self.tokens + sum(layer.merged for layer in layers)

    def _copied(self, layers: Sequence[LayerBytes]) -> float:
        return sum(layer.copied for layer in layers)

    def _ends(self) -> float:
        """Around the layers: the last norm and its result, rotary positions, and a mask of booleans."""
        setup, shape = self.setup, self.setup.shape
        rotary = 2 * self.residual * shape.head_dim * setup.length
        mask = (
            setup.micro_batch * setup.num_lines * setup.length**2 * (1 if setup.attention != "eager" else self.residual)
        )
        norm = (FP32 * shape.hidden_size + FP32 + self._last * shape.hidden_size) * self.tokens
        if setup.stores_on_host:
            return self._last * shape.hidden_size * self.tokens
        return norm + rotary + (mask if setup.has_mask or setup.attention == "eager" else 0)

    @property
    def _last(self) -> int:
        """Type of the last hidden states."""
        return FP32 if self.setup.shape.norm == "layer" and self.c != FP32 else self.residual

    def _head_work(self, tokens: int, *, is_training: bool) -> dict[str, float]:
        """Bytes by part of the head's widest moment: logits, hidden states beside them, its gradient or its copy."""
        setup, shape, c = self.setup, self.setup.shape, self.c
        vocab, hidden = shape.vocab_size, shape.hidden_size
        if shape.gives_scores:
            return {}
        if not self.is_chunked:
            capped = c if shape.model_type == "gemma2" and is_training else 0
            return {"logits": tokens * vocab * ((c if c != FP32 else 0) + 2 * FP32 + capped)}
        rows = min(tokens, max(1, CHUNK_BYTES // (FP32 * vocab)))
        around = tokens * hidden * self._last  # the positions that predict, copied
        low = c if c != FP32 else 0
        chunk = rows * vocab * (low + 2 * FP32)  # logits as they come, widened, and their log-probabilities
        if not is_training:
            return {"activations": around, "logits": chunk}
        around += tokens * hidden * FP32  # their gradients
        head = vocab * hidden
        stored = setup.trained if self.head_trained else setup.storage
        narrow = c * head if stored != c else 0
        product = head * self._product() if self.head_trained else 0
        last = rows * vocab * (c + FP32 + low)  # in the product: the gradient of the logits, and narrowed
        if chunk >= last + max(product, narrow):
            return {"activations": around, "logits": chunk}
        beside = "gradients" if product >= narrow else "weights"
        return {"activations": around, "logits": last, beside: max(product, narrow)}

    def _head_gradient(self) -> int:
        return FP32 * self.setup.shape.num_outputs * self.setup.shape.hidden_size if self.head_trained else 0

    def _product(self) -> int:
        """Bytes for an element of the head while its gradient is made: in the type of the arithmetic, then widened."""
        if self.setup.precision == "fp16":  # and shrunk again, into another one
            return 2 * FP32
        return FP32 if self.c == FP32 else self.c + FP32

    def _narrow_copies(self) -> float:
        """Copies of float32 weights in the type of the arithmetic, which autocast keeps to the end of the pass."""
        if self.setup.trained == self.c or self.c == FP32:
            return 0
        own = (*self.trained.base.items(), *self.trained.copied.items())
        matrices = sum(size for name, size in own if self._is_matrix(name))
        return self.c * (matrices + self.trained.num_adapter)

    def _copies_at_head(self) -> float:
        """Those that are there at the end of the forward pass. Divided weights are cast anew in each use
        (engine/models/model_parts.py): only what layers keep for their backward pass stays."""
        kept = 1 - self.setup.share_forgotten if self._casts_anew() else 1
        return self._head_copy() + (self._narrow_copies() - self._head_copy()) * kept

    def _casts_anew(self) -> bool:
        return self.setup.method == "full" and self.setup.shard != "none"

    def _is_matrix(self, name: str) -> bool:
        shape = self.setup.shape
        if name == f"{shape.embeddings}.weight":
            return shape.tied
        return "norm" not in name and "ln_" not in name

    def _backward(self) -> list[MemoryPoint]:
        """The backward pass at its start (most is kept) and at its end (all gradients are there)."""
        setup, shape = self.setup, self.setup.shape
        every, hidden = setup.checkpointing, shape.hidden_size
        kept, full = self._kept(), self.layers
        head = self._head_gradient() * setup.trained // FP32
        of_layers = self._narrow_copies() - self._head_copy()
        points = [] if self.is_chunked else [self._whole_logits()]
        for number in sorted({len(full) - 1, self._last_forgotten(), 0}):
            layer = full[number]
            saved = self._saved(kept[: number + 1]) + (self._saved([layer]) if layer is not kept[number] else 0)
            left = (number + 1) / len(full)
            copies = of_layers * (left if every is None else 1 / len(full))
            grads = self.gradients if setup.accumulation > 1 else head + (1 - left) * max(0, self.gradients - head)
            widest = max(layer.backward * self.tokens, layer.multiplying * self.tokens + layer.fixed)
            work = saved + widest + self.tokens * hidden * self.residual
            copied = self._copied(kept[: number + 1]) + (layer.copied if layer is not kept[number] else 0)
            grads, weights = grads + self._weight_gradient(), copies + copied + self.gathered
            gathered = self.placement.gathered("backward", number)
            points.append(
                self._point("backward", gradients=grads, activations=work, weights=weights, gathered=gathered)
            )
        if self.embeddings_trained:  # a tied head's gradient has waited for it; all are added into another one
            times = 1 if not shape.tied else 2 if setup.accumulation == 1 else 3
            grads = self.gradients + setup.trained * shape.vocab_size * hidden * times
            points.append(
                self._point("backward", gradients=grads, activations=2 * self.tokens * hidden * self.residual)
            )
        return points

    def _whole_logits(self) -> MemoryPoint:
        """The head's backward pass where all logits were made at once: their gradient, widened and narrowed."""
        setup, shape, c = self.setup, self.setup.shape, self.c
        waiting = self.gradients if setup.accumulation > 1 else 0
        numbers = self.tokens * shape.vocab_size
        logits = numbers * (3 * FP32 + (c if shape.model_type == "gemma2" else 0))
        made = self._head_gradient() / FP32 * self._product()
        kept, forgets = self._kept(), setup.checkpointing is not None
        copies = self._head_copy() if forgets else self._narrow_copies()
        late = 2 * c * numbers + made > logits  # most is there when the head's gradient is
        return self._point(
            "backward", gradients=waiting + (made if late else 0), activations=self._saved(kept) + self._ends(),
            logits=2 * c * numbers if late else logits, weights=copies + self._copied(kept) + self.gathered,
            gathered=self.placement.gathered("forward"),
        )  # fmt: skip

    def _last_forgotten(self) -> int:
        return max((number for number in range(len(self.layers)) if self.setup.forgets(number)), default=0)

    def _weight_gradient(self) -> float:
        """The gradient of the largest trained matrix in the type of the arithmetic, before it is widened."""
        sizes = [size for layer in self.setup.shape.layers[:1] for size in (i * o for i, o in layer.linears.values())]
        if not self.trained.num_base or self.c == FP32:
            return 0
        return self.c * max(sizes)

    def _update(self) -> MemoryPoint:
        at_once = update_bytes(self.setup, self.trained) + moment_slice(self.setup, self.trained)
        gathered = self.placement.gathered("optimizer")
        return self._point("optimizer", gradients=self.gradients, optimizer=at_once, gathered=gathered)

    def _evaluation(self) -> MemoryPoint:
        """Without autograd nothing is kept: one layer's work, or the head's."""
        setup = self.setup
        tokens = setup.eval_batch * setup.example_tokens
        widest = max((layer.forward * tokens + layer.fixed for layer in self.layers), default=0)
        stream = self.residual * setup.shape.hidden_size * tokens  # twice in a layer, once below the head
        head = self._head_copy()
        copies, work = self._narrow_copies() - head, self._head_work(tokens, is_training=False)
        copies /= len(self.layers) if self._casts_anew() else 1
        if sum(work.values()) + head > widest + stream:
            gathered = self.placement.gathered("evaluation")
            return self._point("evaluation", work, activations=stream, weights=copies + head, gathered=gathered)
        gathered = self.placement.gathered("evaluation", 0)
        return self._point("evaluation", activations=widest + 2 * stream, weights=copies, gathered=gathered)

    def _answers(self, phase: Phase, prompt_tokens: int, new_tokens: int, at_once: int) -> MemoryPoint:
        """Keys and values of answers in the making: as the prompts are computed, or as the longest is finished."""
        shape = self.setup.shape
        key = max(self.c, self.residual)  # turning keys by their positions widens them to the residual's type
        numbers = at_once * shape.num_kv_heads * shape.head_dim
        widest = max((layer.forward for layer in self.layers), default=0)
        stream = 2 * self.residual * shape.hidden_size

        def held(tokens: int, computed: int) -> float:
            kept = sum(min(layer.window or tokens, tokens) for layer in shape.layers)
            return numbers * ((key + self.c) * kept + key * tokens) + at_once * computed * (widest + stream)

        activations = max(held(prompt_tokens, prompt_tokens), held(prompt_tokens + new_tokens, 1))
        fixed = max((layer.fixed for layer in self.layers), default=0)
        logits = 2 * FP32 * at_once * shape.vocab_size
        copies = self._narrow_copies() / (len(self.layers) if self._casts_anew() else 1)
        gathered = self.placement.gathered("evaluation", 0)
        return self._point(phase, logits=logits, activations=activations + fixed, weights=copies, gathered=gathered)

    def _head_copy(self) -> int:
        """The trained head in the type of the arithmetic."""
        narrows = self.head_trained and self.setup.trained != self.c
        return self.c * self.setup.shape.num_outputs * self.setup.shape.hidden_size if narrows else 0


def _is_trained(trained: TrainedWeights, module: str) -> bool:
    name = f"{module}.weight"
    return name in trained.base or name in trained.copied


def _largest_layer(setup: TrainingSetup) -> int:
    return max(layer.num_parameters for layer in setup.shape.layers) * setup.storage
