"""`[model]`: what is trained from."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from ftui.profile.fields import Section, weights
from ftui.profile.scratch import FromScratch

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


class ModelSection(Section):
    """`[model]`: the base model: one of `name_or_path` and `from_scratch`."""

    name_or_path: str | None = weights(None)
    """Folder in transformers format or a `.gguf` file (relative to the profile's folder), or a hub id."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a hub model. Resolved to a commit when the run starts; a resumed run stays with it."""

    from_scratch: FromScratch | None = weights(None)
    """Architecture and tokenizer of a new model with random weights."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = weights("auto")
    """How weights are stored. `auto`: trained ones in float32, frozen ones in the type that is computed in."""

    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = weights("auto")
    """Attention kernel; `auto`: `flash_attention_2` where it is installed and can work, else transformers' choice."""

    trust_remote_code: bool = weights(False)
    """Run Python code that comes with the model. It needs `--allow remote-code`, and a full commit as revision."""

    extra_special_tokens: tuple[str, ...] = weights(())
    """Special tokens the tokenizer gets if it has no such entry; the embeddings grow where there is no room."""

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

    @model_validator(mode="after")
    def _trusted_code_is_pinned(self) -> Self:
        if not self.trust_remote_code:
            return self
        if self.name_or_path is None:
            raise ValueError("trust_remote_code goes with name_or_path: a model from scratch brings no code")
        is_local = Path(self.name_or_path).is_absolute()
        if not is_local and not FULL_COMMIT.fullmatch(self.revision or ""):
            raise ValueError(
                "trust_remote_code needs revision = the full commit (40 hex digits) whose code you have read: "
                "a branch or tag can be moved to other code"
            )
        return self

    @model_validator(mode="after")
    def _special_tokens_are_texts(self) -> Self:
        tokens = self.extra_special_tokens
        if len(set(tokens)) != len(tokens) or any(not token.strip() for token in tokens):
            raise ValueError("extra_special_tokens must be different texts, none of them blank")
        return self
