"""The shape of a language model, as far as its size, its memory and its speed depend on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

Norm = Literal["rms", "gemma", "layer"]
Activation = Literal["silu", "gelu", "gelu_new"]
SCORE_HEAD = "score"
"""The linear layer with one output that gives a reward model's score: transformers' name, and PEFT's."""


@dataclass(frozen=True)
class Experts:
    """The experts of a layer; each token goes through `num_active` of `num`. `width` is that of one inside."""

    num: int
    num_active: int
    width: int


@dataclass(frozen=True)
class DecoderLayer:
    """One decoder layer. Paths are those of transformers 5.24, within the layer.

    Attributes:
        linears: path: (inputs, outputs) of every linear layer.
        biased: paths of those with a bias.
        others: path: elements of every other parameter, the experts' stacked matrices among them.
        window: tokens that each one sees at most, `None`: all before it.
    """

    linears: Mapping[str, tuple[int, int]]
    biased: frozenset[str]
    others: Mapping[str, int]
    experts: Experts | None = None
    window: int | None = None

    @cached_property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(number for _, number in self.parameters())

    @cached_property
    def num_linear(self) -> int:
        """Elements of the linear layers' matrices."""
        return sum(inputs * outputs for inputs, outputs in self.linears.values())

    @cached_property
    def num_stacked(self) -> int:
        """Elements of the experts' matrices."""
        return sum(number for path, number in self.others.items() if ".experts." in path)

    def parameters(self) -> Iterator[tuple[str, int]]:
        """(path, elements) of every parameter."""
        for path, (inputs, outputs) in self.linears.items():
            yield f"{path}.weight", inputs * outputs
            if path in self.biased:
                yield f"{path}.bias", outputs
        yield from self.others.items()


@dataclass(frozen=True)
class ModelShape:
    """A whole causal language model, or a reward model.

    Attributes:
        model_type: as in its config.json.
        context: positions it was made for.
        stack: path of the list of layers.
        outer: path: elements of every parameter outside the layers; a tied head is none.
        embeddings, head: paths of these modules.
        width: of the feed-forward layers (of one that is no expert).
        is_gated: whether these have a gate beside the way up.
        eager_only: whether the type has no sdpa kernel, or asks for none.
    """

    model_type: str
    hidden_size: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context: int | None
    tied: bool
    stack: str
    layers: tuple[DecoderLayer, ...]
    outer: Mapping[str, int]
    embeddings: str
    head: str
    norm: Norm = "rms"
    activation: Activation = "silu"
    is_gated: bool = True
    eager_only: bool = False

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @property
    def gives_scores(self) -> bool:
        """Whether it is a reward model."""
        return self.head == SCORE_HEAD

    @property
    def num_outputs(self) -> int:
        """Outputs of the head: one for each entry of the vocabulary, or the score."""
        return 1 if self.gives_scores else self.vocab_size

    @property
    def num_ends(self) -> int:
        """Elements of embeddings and head, a tied head counted once."""
        return self.hidden_size * (self.vocab_size + (0 if self.tied else self.num_outputs))

    def as_reward_model(self) -> "ModelShape":
        """The same with a score for its head."""
        outer = {name: number for name, number in self.outer.items() if not name.startswith(f"{self.head}.")}
        outer[f"{SCORE_HEAD}.weight"] = self.hidden_size
        return replace(self, outer=outer, head=SCORE_HEAD, tied=False)

    @property
    def linears(self) -> Mapping[str, tuple[int, int]]:
        """Linear layers of the first decoder layer, by the last part of their paths."""
        return {path.rpartition(".")[2]: sizes for path, sizes in self.layers[0].linears.items()}

    @cached_property
    def num_parameters(self) -> int:
        """Elements of all parameters, a tied head counted once."""
        return sum(self.outer.values()) + sum(layer.num_parameters for layer in self.layers)

    @cached_property
    def num_active(self) -> int:
        """Parameters that a token meets: of the experts only those it goes through."""
        idle = 0.0
        for layer in self.layers:
            if layer.experts is not None:
                idle += layer.num_stacked * (1 - layer.experts.num_active / layer.experts.num)
        return self.num_parameters - round(idle)

    def parameters(self) -> Iterator[tuple[str, int]]:
        """(name, elements) of every parameter, names as `named_parameters` gives them."""
        yield from self.outer.items()
        for number, layer in enumerate(self.layers):
            for path, elements in layer.parameters():
                yield f"{self.stack}.{number}.{path}", elements

    def linear_names(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """(full name, (inputs, outputs)) of every linear layer but the head."""
        for number, layer in enumerate(self.layers):
            for path, sizes in layer.linears.items():
                yield f"{self.stack}.{number}.{path}", sizes
