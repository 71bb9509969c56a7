"""What a merge begins from: the run's base, verified, its tokenizer, and the model without weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BitsAndBytesConfig, PreTrainedModel

from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import Manifest

from ..data.load_rows import LoadedEncoder, load_encoder
from ..models.files.trained_base import check_base, pin_base
from ..models.load_model import auto_class, check_kind, read_config
from ..models.methods import storage_dtype
from ..models.quantization import quantization
from ..models.special_tokens import fit_embeddings
from ..models.tokenizer import end_padding
from ..system.device import Hardware, find_hardware
from .dequantise import dequantised, packed_layers

Report = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class MergeStart:
    """The profile (its base at the commit of the run), what the run computed on, the base's files, the tokenizer."""

    profile: Profile
    hardware: Hardware
    folder: Path
    loaded: LoadedEncoder
    fingerprint: str

    def model_on_meta(self) -> PreTrainedModel:
        """The model without weights, as large as the result."""
        section, scores = self.profile.model, self.profile.gives_scores
        config = read_config(self.folder, trusted=section.trust_remote_code)
        check_kind(config, self.folder, scores=scores)
        if scores:
            config.num_labels = 1
        make: Any = auto_class(scores=scores).from_config
        with torch.device("meta"):
            model: PreTrainedModel = make(config, dtype=torch.float32, trust_remote_code=section.trust_remote_code)
            fit_embeddings(model, self.loaded.encoder.tokenizer, self.loaded.new_token_ids)
        return model

    def as_computed(self) -> Callable[[str, Tensor], Tensor]:
        """Turns a weight of the base, by its name, into what the run computed with: packed, and made whole again."""
        if not self.profile.adapter.is_quantised:
            return lambda name, weight: weight
        config: BitsAndBytesConfig = quantization(self.profile.adapter, self.hardware)
        layers = packed_layers(self.model_on_meta(), config)
        dtype: Any = storage_dtype(self.profile, self.hardware)

        def whole(name: str, weight: Tensor) -> Tensor:
            layer = name.removesuffix(".weight")
            if layer not in layers:
                return weight
            return dequantised(weight, config, dtype, self.hardware.device, turned=layers[layer])

        return whole


def begin(profile: Profile, manifest: Manifest, cache: Path, report: Report) -> MergeStart:
    """Find the base and see that it is the one that the run was trained on.

    Raises:
        ModelError: it is another one by now, or cannot be found.
    """
    trained_on = manifest.fingerprints.get("base_model", "")
    profile = pin_base(profile, trained_on)
    hardware = find_hardware(profile)
    precision = manifest.environment.get("precision", hardware.precision)
    hardware = replace(hardware, precision=precision)
    report("loading the tokenizer")
    loaded = load_encoder(profile, [], cache, report, weights=True)
    assert loaded.folder is not None, "what is trained from scratch has no adapter"
    check_base(loaded.folder, loaded.commit, trained_on, cache, report)
    if profile.gives_scores:
        loaded.encoder.tokenizer.pad_token = end_padding(loaded.encoder.tokenizer)
    return MergeStart(profile, hardware, loaded.folder, loaded, trained_on)
