"""A run's adapter merged into its base: written beside its place, certified, published in one rename, or not at all."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import GenerationConfig

from ftui.errors import GpuMemoryError, HostMemoryError, ModelError
from ftui.helper.merge_facts import Agreement, Certificate, DType, MergeChoice, MergeResult
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import (
    MARK,
    Manifest,
    StagedExport,
    check_export,
    contents,
    exporting,
    read_manifest,
    total_size,
)
from ftui.runs.run_folder import Run
from ftui.system.files import make_private_folder
from ftui.system.user_folders import cache_folder
from ftui.system.volume import check_room, disk_error, is_refused
from ftui.units import size

from ..data.load_rows import load_data
from ..models.attention import attention_here, settle_groups
from ..models.load_model import load_model
from ..models.lora import BaseReference, stored_adapter
from ..models.methods import storage_dtype
from ..models.quantization import is_packed, keep_layout, quantized_loading
from ..models.special_tokens import fit_embeddings
from ..services.profile_text import given_profile
from ..services.progress import Progress
from ..system.environment import versions
from ..system.memory import return_large_blocks, spare_host_bytes
from .adapter_merge import AdapterMerge
from .certificate import Measured, choose_rows, compare, measure, release
from .dequantise import compute_in_floats
from .merge_start import begin
from .merged_model import Base, MergedModel
from .readme import readme

TYPES: dict[DType, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CERTIFICATE = "certificate.json"
OTHER_FILES = ("README.md", "MANIFEST.json", "config.json", "generation_config.json", "adapter_config.json")
"""Of the source folder, which the result does not have, or has of its own."""

Report = Callable[[str], None]


def merge(on_detail: Report, chosen: dict[str, Any], profile: str) -> MergeResult:
    """Merge what a run has trained into its base. `chosen`: the `MergeChoice`.

    Raises:
        FtuiError: it cannot be merged, or the result is not what was trained.
    """
    return Merge(msgspec.convert(chosen, MergeChoice), given_profile(profile), on_detail).run()


class Merge:
    """A merge under way.

    Raises:
        FtuiError: the base is another one, the adapter does not fit, or there is no room on the disk or in memory.
    """

    def __init__(self, choice: MergeChoice, profile: Profile, report: Report) -> None:
        self._choice, self._report = choice, report
        self._source, self._target = Path(choice.source), Path(choice.target)
        self._manifest = read_manifest(self._source)
        cache = cache_folder(Path(choice.run) / "cache")
        self._start = begin(profile, self._manifest, cache, report)
        report("reading the rows")
        data = load_data(self._start.profile, cache, report, loaded=self._start.loaded)
        # Attention of the certificate: that of float32, which the run may not have had.
        self._in_floats = replace(self._start.hardware, precision="fp32")
        self._section = attention_here(self._start.profile.model, self._in_floats)
        self._rows = data.evaluation or data.train
        self._rows_kind = "training rows" if data.evaluation is None else "evaluation rows"
        self._numbers = choose_rows(self._rows, choice.num_rows)
        self._model = self._merged(choice.into)
        self._check_room()

    def run(self) -> MergeResult:
        """Write, certify, publish.

        Raises:
            ModelError: the result is not what was trained: nothing is published.
            UsageError: something else is at its place.
            DiskError: the disk is full, or fails.
        """
        return_large_blocks()
        manifest = self._new_manifest()
        check_export(self._target, self._choice.mark, replaces=self._choice.replaces)
        expected = self._measure("measuring base and adapter", self._load_adapted)
        try:
            with exporting(self._target, manifest, replaces=self._choice.replaces) as staged:
                progress = Progress(self._report, "merging", self._model.num_tensors, "tensors")
                self._model.write(staged, progress.advance)
                self._write_small_files(staged)
                certificate = self._certify(staged.path, expected)
                text = msgspec.json.format(msgspec.json.encode(certificate), indent=1)
                staged.write(CERTIFICATE, [text + b"\n"])
                staged.write("README.md", [readme(certificate, self._model).encode()])
        except OSError as error:
            if not is_refused(error):
                raise
            raise disk_error(error, f"{self._target} cannot be written", self._target.parent) from error
        num_copied = self._model.num_tensors - self._model.num_changed
        return MergeResult(
            str(self._target), certificate, self._model.num_changed, num_copied, total_size(self._target),
            self._model.is_untied,
        )  # fmt: skip

    def _merged(self, into: str) -> MergedModel:
        start = self._start
        as_computed = start.as_computed() if into == "dequantised" else lambda name, weight: weight
        base = Base(start.folder, start.model_on_meta(), as_computed)
        return MergedModel(base, AdapterMerge(start.model_on_meta(), self._source), TYPES[self._choice.dtype])

    def _check_room(self) -> None:
        """On the disk for the files; in memory for one model in float32 at a time."""
        parent = make_private_folder(self._target.parent)
        check_room(parent, self._model.num_bytes + sum(path.stat().st_size for path in self._copied_files()))
        needed = 4 * sum(weight.numel() for weight in self._model.weights.values())
        free = spare_host_bytes()
        what = f"The certificate needs {size(needed)} of memory for the model in float32"
        if free < needed:
            raise HostMemoryError(f"{what}, and {size(free)} are free.", hint="Merge on a machine with more memory.")
        on_gpu = int(torch.cuda.mem_get_info()[0]) if self._start.hardware.device.type == "cuda" else needed
        if on_gpu < needed:
            raise GpuMemoryError(f"{what}, and {size(on_gpu)} are free on the GPU.", hint="Merge with --device cpu.")

    def _new_manifest(self) -> Manifest:
        old = self._manifest
        return Manifest(
            run_id=old.run_id, attempt=old.attempt, token="", step=old.step, versions=versions(),
            fingerprints=old.fingerprints | {"source": old.seal, MARK: self._choice.mark}, environment=old.environment,
            dtypes={str(self._model.dtype).removeprefix("torch."): self._model.num_tensors}, finite=True, created=0.0,
        )  # fmt: skip

    def _write_small_files(self, staged: StagedExport) -> None:
        """Config, generation config, tokenizer: as libraries write them, then as files of the export."""
        for name, pieces in sorted(contents(staged.path.parent, self._small_files).items()):
            staged.write(name, pieces())

    def _small_files(self, folder: Path) -> None:
        model, tokenizer = self._model.outline, self._start.loaded.encoder.tokenizer
        config: Any = model.config
        config.architectures, config.dtype = [type(model).__name__], self._model.dtype
        if self._model.is_untied:
            config.tie_word_embeddings = False
        if self._start.profile.gives_scores:
            config.get_text_config().pad_token_id = tokenizer.pad_token_id
        config.save_pretrained(folder)
        if not self._start.profile.gives_scores:
            self._save_generation_config(folder)
        for path in self._copied_files():
            shutil.copyfile(path, folder / path.name)

    def _copied_files(self) -> list[Path]:
        """The tokenizer's, and the code that comes with the base."""
        own = [path for path in self._source.iterdir() if path.is_file() and path.suffix != ".safetensors"]
        return [*(path for path in own if path.name not in OTHER_FILES), *self._start.folder.glob("*.py")]

    def _save_generation_config(self, folder: Path) -> None:
        """With every token that ends a turn."""
        stored = self._source / "generation_config.json"
        generation = GenerationConfig.from_model_config(self._model.outline.config)
        if stored.is_file():
            generation = GenerationConfig.from_pretrained(self._source, local_files_only=True)
        encoder = self._start.loaded.encoder
        stops: Any = encoder.tokenizer.convert_tokens_to_ids(sorted(encoder.stops))
        own = generation.eos_token_id
        ends = sorted({*stops, *(own if isinstance(own, list) else [] if own is None else [own])})
        generation.eos_token_id = ends[0] if len(ends) == 1 else ends or None
        if generation.pad_token_id is None:
            generation.pad_token_id = encoder.tokenizer.pad_token_id
        (folder / "generation_config.json").write_text(
            json.dumps(json.loads(generation.to_json_string()), indent=2) + "\n"
        )

    def _certify(self, folder: Path, expected: Measured) -> Certificate:
        """Raises `ModelError` where the result is beyond a limit."""
        start, choice = self._start, self._choice
        merged = self._measure("measuring the merged model", partial(self._load_merged, folder))
        agreement, other = self._compare(expected, merged), None
        is_only_measured = start.profile.adapter.is_quantised and choice.into == "original"
        if is_only_measured:
            model = self._merged("dequantised")
            load = partial(self._load_replaced, folder, model)
            other = self._compare(expected, self._measure("measuring the merge into the dequantised base", load))
        elif misses := agreement.misses(choice.dtype):
            raise ModelError(
                f"Merged in {choice.dtype}, the model is not what was trained: {'; '.join(misses)}. Nothing is kept.",
                hint=_what_helps(choice),
            )
        name = str(start.profile.model.name_or_path)
        return Certificate(
            run=Run(Path(choice.run)).name, source=choice.title, source_seal=self._manifest.seal,
            base=Path(name).name if name.startswith("/") else name, base_fingerprint=start.fingerprint,
            dtype=choice.dtype, into=choice.into if start.profile.adapter.is_quantised else None,
            rows=self._rows_kind, device=start.hardware.name, agreement=agreement, into_dequantised=other,
            versions=versions(),
        )  # fmt: skip

    def _compare(self, expected: Measured, merged: Measured) -> Agreement:
        return compare(expected, merged, len(self._numbers), scored=self._rows.scored)

    def _measure(self, what: str, load: Callable[[], Any]) -> Measured:
        """One model in memory, for as long as it is measured."""
        self._report(f"{what}: loading")
        settle_groups(self._in_floats)
        model = load()
        progress = Progress(self._report, what, len(self._numbers), "rows")
        pad_id = int(self._start.loaded.encoder.tokenizer.pad_token_id or 0)
        measured = measure(model, self._rows, self._numbers, pad_id, progress.advance)
        del model
        release(self._start.hardware.device)
        return measured

    def _load_adapted(self) -> Any:
        """Base and adapter as the run has them, computing in float32."""
        start, section = self._start, self._start.profile.adapter
        quantised = quantized_loading(section, start.hardware)
        dtype = storage_dtype(start.profile, start.hardware) if quantised else torch.float32
        model = load_model(
            start.folder, self._section, dtype, hardware=self._in_floats, scores=start.profile.gives_scores, **quantised
        )
        fit_embeddings(model, start.loaded.encoder.tokenizer, start.loaded.new_token_ids)
        if quantised:
            keep_layout(model)
            compute_in_floats(model)
        for weight in model.parameters():
            if not is_packed(weight):
                weight.data = weight.data.float()
        adapted = stored_adapter(model, self._source, BaseReference(str(start.profile.model.name_or_path)))
        return adapted if quantised else adapted.to(start.hardware.device)

    def _load_merged(self, folder: Path) -> Any:
        start = self._start
        model: Any = load_model(
            folder, self._section, torch.float32, hardware=self._in_floats, scores=start.profile.gives_scores
        )
        return model.to(start.hardware.device)

    def _load_replaced(self, folder: Path, merged: MergedModel) -> Any:
        """The model in a folder, its weights replaced by those of another merge, one at a time."""
        model = self._load_merged(folder)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name in merged.places:
                    weight.copy_(merged.value(name).to(merged.dtype))
        return model


def _what_helps(choice: MergeChoice) -> str:
    if choice.dtype == "fp32":
        return "This should not be: please report it, with the profile of the run."
    digits = {"bf16": 8, "fp16": 11}[choice.dtype]
    why = f"What the adapter changes is smaller than the last of the {digits} binary digits that {choice.dtype} keeps."
    return f"{why} Type: {choice.wider}" if choice.wider else why
