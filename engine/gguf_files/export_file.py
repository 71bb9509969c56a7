"""A GGUF file with its Modelfile: written beside its place, certified, published in one rename, or not at all."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import torch
from gguf.quants import quantize
from peft import PeftModel
from transformers import AutoModelForCausalLM, GenerationConfig

from ftui.errors import ModelError
from ftui.helper.gguf_facts import ExportRequest, ExportResult, GgufCertificate, Kind
from ftui.helper.merge_facts import DType, MergeChoice
from ftui.helper.progress_text import BYTES
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import MANIFEST, MARK, Manifest, StagedExport, check_export, exporting, read_manifest
from ftui.system.checked_write import write_hashed
from ftui.system.files import make_private_folder
from ftui.system.scratch import scratch
from ftui.system.user_folders import cache_folder
from ftui.system.volume import check_room, disk_error, is_refused
from ftui.units import size

from ..data.load_rows import load_data
from ..merging.merge_run import Merge
from ..models.files.trained_base import check_base, pin_base
from ..models.tokenizer import load_tokenizer
from ..services.profile_text import given_profile
from ..services.progress import Progress
from ..system.environment import versions
from ..system.memory import spare_host_bytes
from .gguf_certificate import certify, measure_reference, why_not_measured
from .k_quants import MIXTURES, k_quantizer
from .modelfile import find_family, modelfile
from .sample_texts import comparison_texts
from .vocabulary import Vocabulary
from .write_adapter import adapter_pieces, plan_adapter
from .write_model import ModelPlan, model_pieces, plan_model

CERTIFICATE, MODELFILE = "certificate.json", "Modelfile"
NUM_REFERENCE = 12  # texts whose likeliest tokens are compared
REFERENCE_TOKENS = 256  # of each
MERGED_TYPES: dict[Kind, DType] = {"bf16": "bf16"}  # otherwise fp16

Report = Callable[[str], None]


@dataclass(frozen=True)
class Samples:
    """Texts that show whether the file is what it was made from; `name` says which they are."""

    name: str
    texts: list[str]
    ids: list[list[int]]


def export_gguf(on_detail: Report, request: dict[str, Any], profile: str | None = None) -> ExportResult:
    """Write a GGUF file. `request`: the `ExportRequest`; `profile`: that of the run, if there is one.

    Raises:
        FtuiError: it cannot be written, or is not what was trained.
    """
    parsed = None if profile is None else given_profile(profile)
    return GgufExport(msgspec.convert(request, ExportRequest), parsed, on_detail).run()


class GgufExport:
    """An export under way.

    Raises:
        FtuiError: the model cannot be written as GGUF, or there is no room for it.
    """

    def __init__(self, request: ExportRequest, profile: Profile | None, report: Report) -> None:
        self._request, self._profile, self._report = request, profile, report
        self._target = Path(request.target)
        self._weights = Path(request.weights)
        self._notes: list[str] = []

    def run(self) -> ExportResult:
        """Merge where that is to be done, write, certify, publish.

        Raises:
            ModelError: the file is not what was trained: nothing is published.
            UsageError: something else is at its place.
            DiskError: the disk is full, or fails.
        """
        parent = make_private_folder(self._target.parent)
        try:
            check_export(self._target, self._request.mark, replaces=self._request.replaces)
            with ExitStack() as stack:
                samples = self._read_samples()
                folder = self._weights
                if self._request.is_adapter and not self._request.alone:
                    folder = self._merge(stack.enter_context(scratch("export", parent)))
                elif self._request.alone:
                    folder = self._base
                return self._export(folder, samples, parent)
        except OSError as error:
            if not is_refused(error):
                raise
            raise disk_error(error, f"{self._target} cannot be written", parent) from error

    def _read_samples(self) -> Samples | None:
        """Rows of the run; for a folder with a model they are made once its tokenizer is known."""
        if self._profile is None or self._request.run is None:
            return None
        self._report("reading the rows")
        cache, trained_on = cache_folder(Path(self._request.run) / "cache"), ""
        if self._request.is_adapter:
            trained_on = read_manifest(self._weights).fingerprints.get("base_model", "")
        data = load_data(pin_base(self._profile, trained_on), cache, self._report)
        if self._request.is_adapter:
            assert data.folder is not None, "an adapter has a base"
            check_base(data.folder, data.commit, trained_on, cache, self._report)
        self._base = data.folder or self._weights
        split = data.evaluation or data.train
        sequences = [split.sequences[int(number)] for number in split.indices[:600]]
        ids = [[int(token) for token in one.input_ids] for one in sequences]
        name = "training rows" if data.evaluation is None else "evaluation rows"
        texts = [data.tokenizer.decode(row) for row in ids]
        return Samples(name, [str(text) for text in texts], [row for row in ids if len(row) > 1][:NUM_REFERENCE])

    def _merge(self, work: Path) -> Path:
        """The adapter merged into its base, as `ftui merge` does it, for as long as the file is written."""
        request, target = self._request, work / "merged"
        assert self._profile is not None and request.run is not None, "only a run has an adapter"
        dtype = MERGED_TYPES.get(request.kind, "fp16")
        name = f"{Path(request.run).name}@{request.title}"
        wider = shlex.join(["ftui", "export", name, "--gguf", "f16"]) if dtype == "bf16" else ""
        choice = MergeChoice(request.run, request.weights, request.title, str(target), dtype, wider=wider)
        merged = Merge(choice, self._profile, self._report).run()
        self._notes.append(f"the adapter was merged, and the merge compared, on {merged.certificate.device}")
        return target

    def _export(self, folder: Path, samples: Samples | None, parent: Path) -> ExportResult:
        self._report("looking at the model")
        model = plan_model(folder, "f16" if self._request.alone else self._request.kind)
        adapter = plan_adapter(self._weights, folder, self._request.kind) if self._request.alone else None
        check_room(parent, model.num_bytes + (0 if adapter is None else adapter.num_bytes))
        tokenizer = load_tokenizer(folder)
        samples = samples or _made_samples(tokenizer)
        self._note(model)
        with exporting(self._target, self._new_manifest(model), replaces=self._request.replaces) as staged:
            file = staged.path / self._request.file_name
            plan = adapter or model
            with k_quantizer() if self._request.kind in MIXTURES else nullcontext(quantize) as stored:
                pieces = adapter_pieces(adapter) if adapter else model_pieces(model, self._request.name, stored)
                staged.write(file.name, self._counted(pieces, plan.num_bytes))
            certificate, reason = self._certify(folder, file, model, tokenizer, samples, staged)
            template = "" if adapter is not None else self._write_modelfile(staged, folder, model.vocabulary, tokenizer)
            num_bytes = file.stat().st_size
        published = self._target / self._request.file_name
        return ExportResult(str(published), num_bytes, certificate, reason, template, self._notes)

    def _counted(self, pieces: Iterable[memoryview], total: int) -> Iterable[memoryview]:
        progress = Progress(self._report, "writing", total, BYTES)
        for piece in pieces:
            yield piece
            progress.advance(piece.nbytes)

    def _note(self, model: ModelPlan) -> None:
        vocabulary = model.vocabulary
        if vocabulary.composes:
            self._notes.append(
                "llama.cpp does not compose characters (NFC), as this tokenizer does: send composed text"
            )
        if len(vocabulary.stops) > 3:
            self._notes.append("the file names the first three of its end tokens; the Modelfile has all")
        if self._request.alone and self._profile is not None and self._profile.adapter.is_quantised:
            self._notes.append(
                "the run trained on a quantised base: on the base as it was published the adapter answers otherwise"
            )

    def _certify(
        self, folder: Path, file: Path, model: ModelPlan, tokenizer: Any, samples: Samples, staged: StagedExport
    ) -> tuple[GgufCertificate | None, str]:
        """The certificate, or why there is none.

        Raises:
            ModelError: the file is not what was trained.
        """
        needed = 4 * sum(prod(tensor.shape) for tensor in model.tensors)
        reason = why_not_measured()
        if reason is None and spare_host_bytes() < needed:
            reason = f"the model in float32 needs {size(needed)} of memory, {size(spare_host_bytes())} are free."
        if reason is not None:
            return None, reason
        self._report("measuring with transformers")
        reference = measure_reference(self._load(folder), [ids[:REFERENCE_TOKENS] for ids in samples.ids])
        with scratch("export", staged.path.parent) as work:
            base = file
            if self._request.alone:  # its base is needed as a file, too
                base = work / "base.gguf"
                write_hashed(base, self._counted(model_pieces(model, "base"), model.num_bytes))
            self._report("measuring with llama.cpp")
            certificate = certify(
                base, self._request.kind, tokenizer, model.vocabulary, reference, samples.texts, samples.name,
                adapter=file if self._request.alone else None,
            )  # fmt: skip
        if certificate.problem is not None:
            raise ModelError(
                f"The file was not published: {certificate.problem}.",
                hint=f"It was compared with transformers in float32 on {samples.name}. Another --gguf may hold it.",
            )
        staged.write(CERTIFICATE, [msgspec.json.format(msgspec.json.encode(certificate)) + b"\n"])
        return certificate, ""

    def _load(self, folder: Path) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        if self._request.alone:
            model = PeftModel.from_pretrained(model, str(self._weights), torch_dtype=torch.float32)
        return model.eval()

    def _write_modelfile(self, staged: StagedExport, folder: Path, vocabulary: Vocabulary, tokenizer: Any) -> str:
        """The family of its template; empty where there is none."""
        known = find_family(tokenizer, adds_bos=vocabulary.adds_bos) if vocabulary.template else None
        if known is None:
            why = "is of no family that is known" if vocabulary.template else "does not exist"
            self._notes.append(f"no Modelfile: the chat template {why}")
            return ""
        generation = None
        if (folder / "generation_config.json").is_file():
            generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
        stops = [vocabulary.tokens[stop] for stop in vocabulary.stops]
        text = modelfile(self._request.file_name, known, stops, generation)
        staged.write(MODELFILE, [text.encode()])
        return known.name

    def _new_manifest(self, model: ModelPlan) -> Manifest:
        """Whose weights they are, where that is known."""
        dtypes = {model.kind.upper(): len(model.tensors)}
        if not (self._weights / MANIFEST).is_file():
            return Manifest(
                run_id="", attempt=0, token="", step=0, versions=versions(), fingerprints={}, dtypes=dtypes,
                finite=True, created=0.0,
            )  # fmt: skip
        old = read_manifest(self._weights)
        return Manifest(
            run_id=old.run_id, attempt=old.attempt, token="", step=old.step, versions=versions(),
            fingerprints=old.fingerprints | {"source": old.seal, MARK: self._request.mark},
            environment=old.environment, dtypes=dtypes, finite=True, created=0.0,
        )  # fmt: skip


def _made_samples(tokenizer: Any) -> Samples:
    """For a model of which no rows are known."""
    texts = [text for text in comparison_texts([], []) if len(text) > 40][:NUM_REFERENCE]
    ids: Sequence[list[int]] = [tokenizer(text).input_ids for text in texts]
    return Samples("texts made for it", [], [list(row) for row in ids])
