"""`ftui export`, for commands and screens: what is checked before, where the file is written, what came of it."""

from collections.abc import Mapping
from math import prod
from pathlib import Path

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_session import BASE, find_side
from ftui.helper.client import Helper, OnDetail
from ftui.helper.gguf_facts import ExportRequest, ExportResult, Kind
from ftui.helper.quantize_tool import check_tool
from ftui.launch.long_job import LongJob, Rows, disk_line
from ftui.launch.merge_job import place_merge
from ftui.launch.open_run import stored_profile
from ftui.models.model_files import CONFIG, read_tensors_of
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import check_export
from ftui.runs.events import RunStarted
from ftui.runs.journal import Tail
from ftui.runs.manifest import read_manifest
from ftui.runs.run_folder import Run
from ftui.text import shown
from ftui.units import size

BYTES_OF: Mapping[str, float] = {"f16": 2.0, "bf16": 2.0}
"""Bytes of a number; otherwise at most those of q8_0, which K-quants have for some matrices."""
MOST_BYTES = 34 / 32
HEAD_BYTES = 16 << 20  # more than a vocabulary takes
MERGE_BYTES = 2.0  # of a number of the merged model, which stands beside the file for a while


def export_job(
    source: Run | Path, checkpoint: str | None, kind: Kind, *, alone: bool = False, out: Path | None = None,
    device: str | None = None,
) -> LongJob:  # fmt: skip
    """Work that writes the weights of a run, or those of a folder with a model, as a GGUF file.

    Args:
        checkpoint: of the run; `None` is final/, else the newest.
        alone: the adapter by itself, for the GGUF file of its base.
        out: the folder of the file; otherwise one in the run's `exports/`, or in the current folder.
        device: where an adapter is merged; otherwise it is chosen.

    Raises:
        FtuiError: there is no such checkpoint, it has no adapter, or the disk has no room.
    """
    request, profile = _find(source, checkpoint, kind, alone, out)
    target = Path(request.target)
    request = msgspec.structs.replace(request, replaces=check_export(target, request.mark, quick=True))
    plan: list[tuple[str, ...]] = [("writes", str(target / request.file_name)), ("stored in", kind)]
    if request.replaces:
        plan.append(("replaces", "the same file of these weights"))
    if profile is not None and request.run is not None and request.is_adapter and not alone:
        profile, notes = place_merge(Run(Path(request.run)), profile, device)
        plan += [("merges first", "into a folder that is deleted afterwards"), *notes]
    plan.append(_disk_line(request))

    def run(helper: Helper, on_detail: OnDetail) -> Rows:
        answer = helper.ask("export_gguf", on_detail=on_detail, request=msgspec.to_builtins(request), profile=profile)
        return result_rows(msgspec.convert(answer, ExportResult))

    weights = f"{request.name}@{request.title}" if request.title else source
    return LongJob(f"export {weights} as {request.file_name}", plan, run)


def _find(
    source: Run | Path, checkpoint: str | None, kind: Kind, alone: bool, out: Path | None
) -> tuple[ExportRequest, Profile | None]:
    if alone and kind not in BYTES_OF:
        raise UsageError(f"An adapter is not stored in {kind}.", hint="It is small: --gguf f16.")
    if "_k" in kind:
        check_tool()
    if isinstance(source, Path):
        if alone or not (source / CONFIG).is_file():
            raise UsageError(
                f"{source} is a folder; an adapter is exported from the run that trained it.",
                hint="ftui export RUN --gguf f16 merges it into its base, --adapter writes it alone.",
            )
        model_name = source.resolve().name
        target = out or Path(f"{model_name}-{kind}-gguf")
        return ExportRequest(model_name, kind, str(source.absolute()), str(target.absolute())), None
    run = source
    run.check()
    profile = stored_profile(run)
    if profile.gives_scores:
        raise UsageError(f"{run.name} has trained a reward model: llama.cpp cannot score with it.")
    if checkpoint == BASE:
        raise UsageError("The base is exported from its own folder.", hint="ftui export MODEL_FOLDER --gguf f16")
    side = find_side(run, checkpoint)
    assert side.folder is not None, "only the base has none"
    if alone and not profile.adapter.is_lora:
        raise UsageError(f"{run.name} has trained all weights: there is no adapter.", hint="Leave --adapter out.")
    target = out or run.exports / f"{side.folder_name}-{'adapter-' if alone else ''}{kind}-gguf"
    request = ExportRequest(
        run.name, kind, str(side.folder), str(target.absolute()), str(run.folder), side.title,
        is_adapter=profile.adapter.is_lora, alone=alone,
    )  # fmt: skip
    mark = f"{read_manifest(side.folder).run_id}/{side.title}/{request.file_name}"
    return msgspec.structs.replace(request, mark=mark), profile


def _disk_line(request: ExportRequest) -> tuple[str, str]:
    """What is written at most; the process asks again, once it knows the size exactly."""
    if request.run is None:
        tensors = read_tensors_of(Path(request.weights), is_complete=False)
        numbers = sum(prod(tensor.shape) for tensor in tensors.values())
    else:
        started = (
            record for record in Tail(Run(Path(request.run)).journal).records() if isinstance(record, RunStarted)
        )
        numbers = next((record.total_parameters for record in started), 0)
    per_number = BYTES_OF.get(request.kind, MOST_BYTES) + (MERGE_BYTES if request.is_adapter else 0.0)
    return disk_line(Path(request.target).parent, int(numbers * per_number) + HEAD_BYTES)


def result_rows(result: ExportResult) -> Rows:
    """What came of it, a line for each thing."""
    rows = [("file", f"{result.file} ({size(result.num_bytes)})")]
    if (proof := result.certificate) is None:
        rows.append(("certificate", f"not measured: {result.reason}"))
    else:
        rows += [
            ("tokens", f"the same on {proof.num_equal} of {proof.num_texts} texts"),
            (
                "log-probabilities",
                f"differ by {proof.largest_difference:.3f} at most among the 20 likeliest ({proof.limit:g} allowed); "
                f"the first is the same at {proof.num_same_first} of {proof.num_places} places of {proof.rows}",
            ),
        ]
    if result.template:
        rows.append(("Modelfile", f"template {result.template}: ollama create NAME -f Modelfile"))
    return [*rows, *(("note", shown(note)) for note in result.notes)]
