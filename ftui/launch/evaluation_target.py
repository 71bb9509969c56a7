"""What is evaluated: weights of a run with the settings of its profile, or any folder with a model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftui.errors import ModelError, UsageError
from ftui.estimate.closed_form import answering_memory
from ftui.helper.chat_session import BASE, Side, find_side
from ftui.launch.answering_sides import choose_device
from ftui.models.local import CONFIG, read_config, read_facts
from ftui.profile.checks.messages import profile_error
from ftui.profile.layers import examine, override_layer, resolve, text_layer
from ftui.profile.schema import Profile
from ftui.profile.sections.data import DataSource, sources
from ftui.profile.sections.evaluation import EvalSection
from ftui.profile.sections.preference import PreferenceSection
from ftui.runs.run_folder import Run
from ftui.text import toml_value

ADAPTER_CONFIG = "adapter_config.json"
TOKEN_STAGES = ("sft", "pretrain")


@dataclass(frozen=True)
class EvaluationTarget:
    """Sides that are evaluated (the first, and one to compare it with), with a profile that says how.

    Attributes:
        name: of the run, or the folder as a person typed it.
        run: whose it is; `None` for a folder with a model.
        profile: of the run, or of defaults. A run of another stage is evaluated as stage sft.
        assumptions: what a person should know of that profile.
    """

    name: str
    run: Run | None
    profile: Profile
    sides: Sequence[Side]
    device: str | None
    assumptions: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is evaluated, with its checkpoint."""
        return self.name if self.run is None else f"{self.run.name}@{self.sides[0].title}"

    def check_base(self) -> None:
        """Raises `UsageError` where there is no model from which the training began, or it is the one evaluated."""
        if self.sides[0].folder is None or self.profile.model.from_scratch is not None:
            raise UsageError(f"{self.title} has no base that it could have forgotten something of.")


def find_target(
    source: Run | Path, checkpoint: str | None, against: str | None, data: Path, device: str | None,
    overrides: Sequence[str],
) -> EvaluationTarget:  # fmt: skip
    """A run with a checkpoint of it, or a folder with a model or an adapter.

    Args:
        checkpoint: of the run; `None` is final/, else the newest.
        against: `base` or a checkpoint of the run, to compare with.
        data: rows; a profile must name some.
        overrides: `--set` of the profile.

    Raises:
        FtuiError: there is none, it gives scores and no text, or there is nothing to compare it with.
    """
    if isinstance(source, Path):
        return _find_in_folder(str(source), source.absolute(), against, data, device, overrides)
    run = source
    run.check()
    profile = resolve(run.profile, overrides=overrides).profile
    if profile.gives_scores:
        raise UsageError(
            f"{run.name} is of stage rm: a reward model scores answers, and gives no text.",
            hint="Its own evaluations (stage rm: reward accuracy and margin) are in `ftui log`.",
        )
    sides = [find_side(run, checkpoint)]
    if against is not None:
        sides.append(find_side(run, against))
        if sides[0].folder == sides[1].folder:
            raise UsageError(f"--against {against} is what it would be compared with.")
    if profile.model.from_scratch is not None and any(side.folder is None for side in sides):
        raise UsageError(f"{run.name} has no base: its model was trained from scratch.")
    device, reason = choose_device(
        run, profile, device, lambda setup: answering_memory(setup, profile.data.max_length, len(sides))
    )
    assumptions = [reason] if reason else []
    if profile.run.stage not in TOKEN_STAGES:
        assumptions.append(
            f"the run is of stage {profile.run.stage}, which compares answers: the rows are evaluated as stage sft has "
            f"them, an answer each; what stage {profile.run.stage} measures is in the run's own evaluations"
        )
    return EvaluationTarget(run.name, run, profile, sides, device, tuple(assumptions))


def _find_in_folder(
    name: str, folder: Path, against: str | None, data: Path, device: str | None, overrides: Sequence[str]
) -> EvaluationTarget:
    is_adapter = (folder / ADAPTER_CONFIG).is_file()
    config = read_config(folder / (ADAPTER_CONFIG if is_adapter else CONFIG))
    if config.get("task_type") == "SEQ_CLS" or "ForSequenceClassification" in str(config.get("architectures")):
        raise UsageError(f"{name} holds a reward model (stage rm): it scores answers, and gives no text.")
    base = str(config.get("base_model_name_or_path") or "") if is_adapter else str(folder)
    if not base:
        raise ModelError(f"{folder / ADAPTER_CONFIG} does not say which model the adapter is for.")
    profile = _default_profile(Path(base), base, data, overrides, is_adapter=is_adapter)
    title = "adapter" if is_adapter and folder.name == BASE else folder.name
    stamp = _stamp(folder) + (_stamp(Path(base)) if is_adapter and Path(base).is_dir() else "")
    side = Side(title, folder if is_adapter else None, stamp)
    if against not in (None, BASE) or (against == BASE and not is_adapter):
        raise UsageError(
            f"{name} is a folder with {'an adapter' if is_adapter else 'a whole model'}: there is no {against} of it.",
            hint="--against base goes with an adapter, checkpoints with a run.",
        )
    sides = [side] if against is None else [side, Side(BASE)]
    precision = f"train.precision = {toml_value(profile.train.precision)}"
    template = f"the template {profile.data.chat_template}" if profile.data.chat_template else "its own chat template"
    assumptions = (
        f"no run, so values are defaults: stage {profile.run.stage}, data.max_length = {profile.data.max_length}, "
        f"{template}, {precision} (--set section.key=value for others)",
    )
    return EvaluationTarget(name, None, profile, sides, device, assumptions)


def _default_profile(folder: Path, base: str, data: Path, overrides: Sequence[str], *, is_adapter: bool) -> Profile:
    context = read_facts(folder).context if folder.is_dir() else None
    default = 1024 if context is None else min(1024, context)
    text = "\n".join([
        '[run]\nstage = "sft"', f"[model]\nname_or_path = {toml_value(base)}",
        f'[adapter]\nmethod = "{"lora" if is_adapter else "full"}"',
        f"[data]\ntrain = {toml_value(str(data))}\nmax_length = {default}",
    ])  # fmt: skip
    place = Path("profile.toml").absolute()
    examined = examine([text_layer(text, place), override_layer(overrides)], place)
    if examined.profile is None or examined.problems:
        raise profile_error(examined.problems, place)
    return examined.profile


def _stamp(folder: Path) -> str:
    """A hash of names, sizes and times of the files of a model: it changes when the model does."""
    files = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    facts = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files)
    return hashlib.sha256(facts.encode()).hexdigest()


def evaluation_profile(target: EvaluationTarget, data: Path) -> Profile:
    """The profile whose rows are those of a file, read as the run reads its own; nothing of training is left in it."""
    profile, section = target.profile, target.profile.data
    of_run = sources(section.train)
    source: str | DataSource = str(data)
    if len(of_run) == 1:  # what its only source says itself holds for these rows too
        kept = {"path": str(data), "weight": 1.0, "num_samples": None, "subset": None, "split": None, "revision": None}
        source = of_run[0].model_copy(update=kept)
    rows = section.model_copy(update={"train": (source,), "eval": None, "eval_fraction": None, "eval_num_rows": None})
    return _for_tokens(target, profile.model_copy(update={"data": rows}))


def held_out_profile(target: EvaluationTarget, data: Path) -> Profile:
    """The profile of the run's own evaluation rows, without those of `data`.

    Raises:
        UsageError: the run has none.
    """
    section = target.profile.data
    others = () if section.eval is None else [one for one in sources(section.eval) if Path(one.path) != data]
    sets_aside = section.eval_fraction is not None or section.eval_num_rows is not None
    if target.run is None or not (others or sets_aside):
        raise UsageError(
            f"{target.name} has no evaluation rows of its own" + (" but these." if section.eval else "."),
            hint="Name rows that it should still do well: --forgetting FILE.",
        )
    if others:
        section = section.model_copy(update={"train": tuple(others), "eval": None})
    return _for_tokens(target, target.profile.model_copy(update={"data": section}))


def _for_tokens(target: EvaluationTarget, profile: Profile) -> Profile:
    stage = profile.run.stage if profile.run.stage in TOKEN_STAGES else "sft"
    model = profile.model
    if model.from_scratch is not None:  # its tokenizer would be trained anew, on these rows
        update = {"name_or_path": str(target.sides[0].folder), "revision": None, "from_scratch": None}
        model = model.model_copy(update=update)
    return profile.model_copy(
        update={
            "run": profile.run.model_copy(update={"stage": stage}),
            "model": model,
            "preference": PreferenceSection(),
            "curriculum": (),
            "eval": EvalSection(per_device_eval_batch_size=profile.eval.per_device_eval_batch_size),
            "hardware": profile.hardware.model_copy(update={"num_processes": 1}),
        }
    )
