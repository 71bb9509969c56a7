"""Whose file it is, by its keys."""

from collections.abc import Callable
from dataclasses import dataclass

from ftui.errors import ProfileError
from ftui.importers.config_file import Document
from ftui.importers.draft import Draft
from ftui.importers.tools import axolotl, axolotl_rules, deepspeed, guides, guides_rules, llamafactory, torchtune, trl

FEWEST = 3  # keys that a file of no tool must have in common with the shapes of guides


@dataclass(frozen=True)
class Shape:
    tool: str
    fill: Callable[[Draft], None]


AXOLOTL, DEEPSPEED = Shape(axolotl_rules.TOOL, axolotl.fill), Shape(deepspeed.TOOL, deepspeed.fill)
LLAMAFACTORY, TRL = Shape(llamafactory.TOOL, llamafactory.fill), Shape(trl.TOOL, trl.fill)
TORCHTUNE, GUIDE = Shape(torchtune.TOOL, torchtune.fill), Shape(guides_rules.TOOL, guides.fill)


def shape_of(document: Document) -> Shape:
    """Raises `ProfileError` where it is nobody's."""
    top = {str(leaf.path[0]) for leaf in document.leaves}
    plain = {leaf.name for leaf in document.leaves}
    if any(leaf.path[-1] == "_component_" for leaf in document.leaves):
        return TORCHTUNE
    if top & {"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"}:
        return DEEPSPEED
    if "optimizer.params.lr" in plain and not top & {"model", "base_model", "data"}:
        return DEEPSPEED
    if "base_model" in plain and top & set(axolotl.RULES) - set(guides.RULES) | top & {"datasets", "adapter"}:
        return AXOLOTL
    if top & {"micro_batch_size", "sequence_len"} and "datasets" in top:
        return AXOLOTL
    if "model_name_or_path" in plain or plain & {"finetuning_type", "stage"}:
        return LLAMAFACTORY if _is_llamafactory(plain) else TRL
    if len([leaf for leaf in document.leaves if guides.names(leaf) in guides.RULES]) >= FEWEST:
        return GUIDE
    known = f"{axolotl_rules.TOOL}, {llamafactory.TOOL}, {trl.TOOL}, {torchtune.TOOL}, {deepspeed.TOOL}"
    raise ProfileError(
        f"{document.path} has no shape that can be imported.",
        hint=f"Known: the training files of {known}, and tables model, lora, data, training as guides have them.",
    )


def _is_llamafactory(plain: set[str]) -> bool:
    own = set(llamafactory.RULES) - set(trl.RULES)
    theirs = set(trl.RULES) - set(llamafactory.RULES)
    return len(plain & own) >= len(plain & theirs)
