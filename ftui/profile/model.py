"""`[model]`: what is trained from."""

from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, weights
from ftui.profile.scratch import FromScratch


class ModelSection(Section):
    """`[model]`: the base model: one of `name_or_path` and `from_scratch`."""

    name_or_path: str | None = weights(None)
    """Folder in transformers format (relative to the profile's folder), or a hub id such as `Qwen/Qwen3-0.6B`."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a hub model. Resolved to a commit when the run starts."""

    from_scratch: FromScratch | None = weights(None)
    """Architecture and tokenizer of a new model with random weights."""

    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = weights("auto")
    """Attention kernel; `auto` is transformers' choice: `sdpa`, or `eager` where a model type has no other."""

    @model_validator(mode="after")
    def _no_address(self) -> Self:
        if "://" in (self.name_or_path or ""):  # it could hold a password, and a profile is copied into its run
            raise ValueError("name_or_path is a hub id or a folder, not an address; HF_ENDPOINT names another hub")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name_or_path is None) == (self.from_scratch is None):
            raise ValueError("give one of name_or_path and from_scratch")
        return self
