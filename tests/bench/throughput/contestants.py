"""Who takes part in which cell of the table, and with which settings."""

from dataclasses import dataclass, field
from typing import Any

METHODS = ("lora", "qlora", "full", "pretrain", "dpo")
RANK, ALPHA, MAX_LENGTH = 16, 32, 1024
LEARNING_RATES = {"lora": 2e-4, "qlora": 2e-4, "full": 2e-5, "pretrain": 1e-3, "dpo": 1e-4}
TOOLS = {
    "ftui": "ftui", "trainer": "transformers Trainer", "trl": "TRL", "llamafactory": "LLaMA-Factory",
    "litgpt": "LitGPT",
}  # fmt: skip
Settings = dict[str, Any]


@dataclass(frozen=True)
class Contestant:
    """A tool with its settings in one method.

    Attributes:
        order: of the rows: `random`, or `grouped` (rows of like length share a step).
        model: `stored` (in the type it comes in) or `float32`: which copy of the weights it is given.
        settings: what differs from the tool's defaults, beside what the task gives to all (see page.TASK).
        is_exact: computes in float32, so that its losses must be those of the others to the last digits that count.
        has_own_batches: it packs rows, so that its steps hold others than the file's.
    """

    tool: str
    method: str
    kind: str
    settings: Settings = field(default_factory=dict)
    order: str = "random"
    model: str = "stored"
    is_exact: bool = False
    has_own_batches: bool = False

    @property
    def has_adapter(self) -> bool:
        return self.method in ("lora", "qlora", "dpo")

    @property
    def name(self) -> str:
        return f"{self.tool}_{self.kind}"

    @property
    def cell(self) -> str:
        return f"{self.method}/{self.name}"


NO_SAVE: Settings = {"checkpoint": {"save_strategy": "no", "save_minutes": None}}
FP32: Settings = {"model": {"dtype": "float32"}}
# SFTTrainer switches bf16 and gradient checkpointing on; the Trainer has both off.
TRL_BEST: Settings = {**FP32, "arguments": {"bf16": False, "gradient_checkpointing": False}}
LLAMA_FACTORY_BEST: Settings = {"arguments": {"disable_gradient_checkpointing": True}}
LIT_BEST: Settings = {"arguments": {"precision": "32-true"}, "train": {"micro_batch_size": 8}}
# A pair at a time: the least padding and memory, and the fastest of the peers' settings. With an adapter TRL needs no
# second model; measured beforehand, the reference is no part of a step, as in ftui.
SINGLE: Settings = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
TRL_WHOLE: Settings = {**FP32, "arguments": {**TRL_BEST["arguments"], "precompute_ref_log_probs": True}}
TRL_DPO_BEST: Settings = {**FP32, "arguments": {**TRL_WHOLE["arguments"], **SINGLE}}
LLAMA_FACTORY_DPO_BEST: Settings = {"arguments": {**LLAMA_FACTORY_BEST["arguments"], **SINGLE}}


def _in_all_methods() -> list[Contestant]:
    contestants = []
    for method in METHODS[:-1]:
        best: dict[str, Any] = {"kind": "best", "order": "grouped", "is_exact": True}
        contestants += [
            Contestant("ftui", method, "default", is_exact=True),
            Contestant("ftui", method, settings=NO_SAVE, **best),
            Contestant("trainer", method, "default"),
            Contestant("trainer", method, settings=FP32, **best),
            Contestant("trl", method, "default"),
            Contestant("trl", method, settings=TRL_BEST, **best),
            Contestant("llamafactory", method, "default"),
            Contestant("llamafactory", method, settings=LLAMA_FACTORY_BEST, model="float32", **best),
            Contestant("litgpt", method, "default"),
            Contestant("litgpt", method, settings=LIT_BEST, **best),
        ]
    return contestants


def _in_dpo() -> list[Contestant]:
    best: dict[str, Any] = {"method": "dpo", "kind": "best", "order": "grouped", "is_exact": True}
    return [
        Contestant("ftui", "dpo", "default", is_exact=True),
        Contestant("ftui", settings=NO_SAVE | {"train": SINGLE}, **best),
        Contestant("trl", "dpo", "default"),
        Contestant("trl", settings=TRL_DPO_BEST, **best),
        Contestant("llamafactory", "dpo", "default"),
        Contestant("llamafactory", settings=LLAMA_FACTORY_DPO_BEST, model="float32", **best),
    ]


def batch(method: str) -> int:
    """Rows of a step: 8 sequences, which are 4 pairs."""
    return 4 if method == "dpo" else 8


PACKED: Settings = {"arguments": {**TRL_BEST["arguments"], "packing": True, "per_device_train_batch_size": 1}}
# Tried to find the best settings of each tool; not part of the table unless `--only` names them.
TRIALS = [
    Contestant("ftui", "lora", "packed", NO_SAVE | {"data": {"packing": True}}, is_exact=True, has_own_batches=True),
    Contestant("trl", "lora", "packed", {**FP32, **PACKED}, is_exact=True, has_own_batches=True),
    Contestant("trl", "lora", "bf16", {"arguments": {"gradient_checkpointing": False}}, "grouped"),
    Contestant("trainer", "lora", "bf16", {**FP32, "arguments": {"bf16": True}}, "grouped"),
    Contestant(
        "llamafactory", "lora", "bf16", {"arguments": {**LLAMA_FACTORY_BEST["arguments"], "bf16": True}}, "grouped"
    ),
    Contestant("litgpt", "lora", "bf16", {**LIT_BEST, "arguments": {"precision": "bf16-mixed"}}, "grouped"),
    Contestant("litgpt", "lora", "single", {**LIT_BEST, "train": {"micro_batch_size": 1}}, is_exact=True),
    Contestant("ftui", "dpo", "whole", NO_SAVE, "grouped", is_exact=True),
    Contestant("trl", "dpo", "whole", TRL_WHOLE, "grouped", is_exact=True),
    Contestant("trl", "dpo", "online", TRL_BEST, "grouped", is_exact=True),
    Contestant("llamafactory", "dpo", "whole", LLAMA_FACTORY_BEST, "grouped", "float32", is_exact=True),
]
TABLE = {contestant.cell: contestant for contestant in [*_in_all_methods(), *_in_dpo()]}
ALL = TABLE | {contestant.cell: contestant for contestant in TRIALS}
