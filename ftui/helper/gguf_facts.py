"""What is sent between whoever exports a GGUF file and the process that writes it."""

from typing import Literal

import msgspec

Kind = Literal["f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m"]
LEAST_SAME_FIRST = {"f16": 0.75, "bf16": 0.75, "q8_0": 0.75, "q6_k": 0.75, "q5_k_m": 0.6, "q4_k_m": 0.6}
"""Of all places; what is rounded to 8 bits changes few, rows in another order change most."""
MOST_KL = {"f16": 0.02, "bf16": 0.02, "q8_0": 0.02, "q6_k": 0.05, "q5_k_m": 0.1, "q4_k_m": 0.1}
"""Nats in the mean. Of SmolLM2-135M 8 bits take 0.004; with the rows of one matrix of the last layer in another order
it is 0.06, and all else stays within its limit: the largest difference is 2.4, the first the same at 20 of 24 places.
"""


class ExportRequest(msgspec.Struct, frozen=True):
    """What is written, and from what.

    Attributes:
        name: of the model, for `general.name` and the file.
        kind: how matrices are stored.
        weights: a folder with a whole model in transformers format, or with an adapter of a run.
        target: the folder that will hold the file.
        run: the folder of the run that trained the weights; `None` where a model folder was named.
        title: of the weights in the run: final, checkpoint-120.
        is_adapter: `weights` are an adapter, which is merged first or, with `alone`, written by itself.
        mark: which file of which weights, for `check_export`; empty where no run is known.
        replaces: it is there already.
    """

    name: str
    kind: Kind
    weights: str
    target: str
    run: str | None = None
    title: str = ""
    is_adapter: bool = False
    alone: bool = False
    mark: str = ""
    replaces: bool = False

    @property
    def file_name(self) -> str:
        """Name of the GGUF file in the target."""
        return f"{self.name}-{'adapter-' if self.alone else ''}{self.kind}.gguf"


class GgufCertificate(msgspec.Struct, frozen=True):
    """A GGUF file in llama.cpp beside what it was made from in transformers (float32).

    Attributes:
        num_equal: of `num_texts` texts have the same tokens; `example` is one that has others.
        largest_difference: of a log-probability of the 20 likeliest tokens, at `num_places` places of `rows`.
        limit: how large it may be.
        num_same_first: at how many places the likeliest token is the same; at least `least_same` (a share) of them.
        mean_kl: in nats, from transformers to llama.cpp, of those 20 tokens and all others as one; `most_kl` at most.
    """

    num_texts: int
    num_equal: int
    example: str
    rows: str
    num_places: int
    largest_difference: float
    limit: float
    num_same_first: int
    mean_kl: float
    most_kl: float = MOST_KL["f16"]
    least_same: float = LEAST_SAME_FIRST["f16"]
    versions: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """Why the file must not be published; `None` where it may."""
        if self.num_equal < self.num_texts:
            different = self.num_texts - self.num_equal
            return f"llama.cpp makes other tokens of {different} of {self.num_texts} texts, say of {self.example!r}"
        if not self.largest_difference <= self.limit:
            return f"a log-probability differs by {self.largest_difference:.3f}; at most {self.limit:g} is allowed"
        if self.num_same_first < self.least_same * self.num_places:
            return f"the likeliest token is the same at {self.num_same_first} of {self.num_places} places only"
        if not self.mean_kl <= self.most_kl:
            return f"the mean KL is {self.mean_kl:.2g} nats; at most {self.most_kl:g} is allowed"
        return None


class ExportResult(msgspec.Struct, frozen=True):
    """A file that is published. `reason`: why there is no certificate; `notes`: what a person should know of it.

    `template` is the family of the Modelfile's template, empty where none was written.
    """

    file: str
    num_bytes: int
    certificate: GgufCertificate | None
    reason: str
    template: str
    notes: list[str]
