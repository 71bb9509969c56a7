"""A merge of what a run has trained into its base: checked, and as long work that may begin."""

import shlex
from pathlib import Path

import msgspec

from ftui.errors import UsageError
from ftui.estimate.closed_form import comparing_memory
from ftui.helper.chat_session import Side, find_side
from ftui.helper.client import Helper, OnDetail
from ftui.helper.merge_facts import DType, Into, MergeChoice, MergeResult, agreement_rows
from ftui.launch.answering_sides import choose_device
from ftui.launch.long_job import LongJob, Rows, disk_line
from ftui.launch.open_run import stored_profile
from ftui.models.local import find_folder, read_facts
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import check_export, read_manifest
from ftui.runs.events import RunStarted
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from ftui.text import shown
from ftui.units import size

STORED: dict[str, DType] = {
    "BF16": "bf16", "F16": "fp16", "F32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32",
}  # fmt: skip
"""By the names of a file of weights, and of config.json."""

BYTES: dict[DType, int] = {"bf16": 2, "fp16": 2, "fp32": 4}


def merge_job(
    run: Run, checkpoint: str | None, dtype: DType | None = None, into: Into | None = None, out: Path | None = None,
    device: str | None = None,
) -> LongJob:  # fmt: skip
    """The merge of a run's adapter (that checkpoint; or final/, else the newest), by default into its folder exports/.

    Without a `dtype` the result is stored in the type that the base is stored in.

    Raises:
        UsageError: there is nothing to merge, or a choice has no meaning for this run.
        DiskError: there is no room.
    """
    run.check()
    profile = stored_profile(run)
    side = find_side(run, checkpoint)
    if side.folder is None:
        raise UsageError("The base has no adapter: there is nothing to merge.", hint="Name final or a checkpoint.")
    _check_method(run, profile, side, into)
    profile, notes = place_merge(run, profile, device)
    chosen: DType = dtype or _stored_dtype(profile)
    name = f"{side.folder_name}-{chosen}{'-original' if into == 'original' else ''}"
    target = out or run.exports / name
    mark = f"{read_manifest(side.folder).run_id}/{name}"
    choice = MergeChoice(
        run=str(run.folder), source=str(side.folder), title=side.title, target=str(target.absolute()), dtype=chosen,
        into=into or "dequantised", mark=mark, replaces=check_export(target, mark, quick=True),
        wider=_wider_command(run, side, chosen, into, out, device),
    )  # fmt: skip
    plan: list[tuple[str, ...]] = [
        ("into", _describe_base(profile, choice.into)),
        ("stored in", chosen),
        ("folder", shown(str(target))),
        *notes,
    ]
    if choice.replaces:
        plan.append(("replaces", "the same merge of these weights"))
    starts = (record for record in Tail(run.journal).records() if isinstance(record, RunStarted))
    num_parameters = next((record.total_parameters for record in starts), 0)
    plan.append(disk_line(target.parent, BYTES[chosen] * num_parameters))

    def merge(helper: Helper, on_detail: OnDetail) -> Rows:
        answer = helper.ask("merge", on_detail=on_detail, profile=profile, chosen=msgspec.to_builtins(choice))
        return result_rows(msgspec.convert(answer, MergeResult))

    return LongJob(f"merge {run.name}@{side.title}", plan, merge)


def place_merge(run: Run, profile: Profile, device: str | None) -> tuple[Profile, list[tuple[str, ...]]]:
    """The profile with the device that merges and certifies, and what a plan says of it."""
    device, reason = choose_device(run, profile, device, comparing_memory)
    if device is not None:
        hardware = profile.hardware.model_copy(update={"device": device})
        model = profile.model.model_copy(update={"attn_implementation": "auto"})  # flash attention has no float32
        profile = profile.model_copy(update={"hardware": hardware, "model": model})
    return profile, [("note", reason)] if reason else []


def _check_method(run: Run, profile: Profile, side: Side, into: Into | None) -> None:
    if not profile.adapter.is_lora:
        raise UsageError(
            f"{run.name} trained weights of the model itself ({profile.adapter.method}): there is nothing to merge.",
            hint=f"{side.title} is a whole model already: use {side.folder} as it is.",
        )
    if into is not None and not profile.adapter.is_quantised:
        raise UsageError(
            f"{run.name} was trained on a base that is not quantised: --into {into} has no meaning for it.",
            hint="Leave --into out.",
        )


def _wider_command(run: Run, side: Side, dtype: DType, into: Into | None, out: Path | None, device: str | None) -> str:
    """What to type where the type has too few digits; "" where there is none with more."""
    if dtype == "fp32":
        return ""
    words = ["ftui", "merge", f"{run.name}@{side.title}", "--dtype", "fp16" if dtype == "bf16" else "fp32"]
    for option, value in (("--into", into), ("--out", out), ("--device", device)):
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)


def _stored_dtype(profile: Profile) -> DType:
    folder = find_folder(str(profile.model.name_or_path), profile.model.revision)
    stored = None if folder is None else read_facts(folder).dtype
    return STORED.get(stored or "", "bf16")


def _describe_base(profile: Profile, into: Into) -> str:
    name = shown(str(profile.model.name_or_path))
    if not profile.adapter.is_quantised:
        return name
    return f"{name}, {'as it is once quantised' if into == 'dequantised' else 'as its files are'}"


def result_rows(result: MergeResult) -> list[tuple[str, ...]]:
    """What became of a merge, a line each."""
    certificate = result.certificate
    rows: list[tuple[str, ...]] = [
        ("merged", shown(result.folder)),
        ("size", f"{size(result.num_bytes)}, {result.num_changed} weights merged, {result.num_copied} as in the base"),
        ("compared", f"{certificate.agreement.num_rows} {certificate.rows}, both in float32 on {certificate.device}"),
        *agreement_rows(certificate.agreement),
    ]
    if result.is_untied:
        rows.append(("untied", "embeddings and head differ now, and are two tensors"))
    if certificate.into_dequantised is not None:
        rows.append(("or else", "merged into the dequantised base:"))
        rows += agreement_rows(certificate.into_dequantised)
    return rows
