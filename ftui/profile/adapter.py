"""`[adapter]`: the method, and which weights it trains."""

from typing import Literal

from ftui.profile.fields import Section, weights


class AdapterSection(Section):
    """`[adapter]`: which weights are trained."""

    method: Literal["lora", "full"] = weights("lora")
    """`lora` trains small matrices beside the frozen base; `full` trains every weight of the model."""

    r: int = weights(16, ge=1, le=1024)
    """Rank of the LoRA matrices: more learns more and costs more memory."""

    lora_alpha: int = weights(32, ge=1)
    """Scale of the adapter: its output is multiplied by lora_alpha / r."""

    lora_dropout: float = weights(0.0, ge=0, lt=1)
    """Share of the adapter's inputs dropped while training."""

    target_modules: Literal["all-linear"] | tuple[str, ...] = weights("all-linear")
    """Layers that get an adapter: `all-linear`, or a list of names such as `["q_proj", "v_proj"]`."""
