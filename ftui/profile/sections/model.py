"""`[model]`: the model that training starts from."""

import re
from typing import Literal

from pydantic import field_validator

from ftui.profile.consent import REMOTE_CODE
from ftui.profile.sections.fields import Section, refuse_address, weights
from ftui.profile.sections.from_scratch import FromScratch

FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


class ModelSection(Section):
    """`[model]`: the base model. Give `name_or_path` or `from_scratch`."""

    name_or_path: str | None = weights(None, min_length=1)
    """Folder in transformers format or a `.gguf` file (relative to the profile's folder), or a hub id."""

    revision: str | None = weights(None)
    """Branch, tag or commit of a hub model. Resolved to a commit when the run starts; a resumed run keeps it."""

    from_scratch: FromScratch | None = weights(None)
    """Architecture and tokenizer of a new model with random weights."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = weights("auto")
    """Type in which weights are stored. `auto`: trained weights in float32, frozen ones in the compute type."""

    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = weights("auto")
    """Attention kernel. `auto`: `flash_attention_2` where it is installed and works, else transformers' choice."""

    trust_remote_code: bool = weights(
        False,
        description="Run the Python code that comes with the model."
        f" Needs `--allow {REMOTE_CODE}` and a full commit as revision.",
    )

    extra_special_tokens: tuple[str, ...] = weights(())
    """Special tokens to add to the tokenizer if it lacks them. The embeddings grow if they have no spare rows."""

    _no_address = field_validator("name_or_path")(refuse_address)

    @field_validator("extra_special_tokens")
    @classmethod
    def _are_texts(cls, tokens: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(tokens)) != len(tokens) or any(not token.strip() for token in tokens):
            raise ValueError("extra_special_tokens must be different texts, none of them blank")
        return tokens
