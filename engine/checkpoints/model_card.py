"""The model card (README.md) of a result: what was trained, how and on what, as the run's files have it.

Facts only. What was not measured is called so; a licence is for the owner of the weights to state.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ftui import units
from ftui.measures import MEASURES
from ftui.profile.schema import Profile
from ftui.profile.sections.adapter import AdapterSection
from ftui.runs.describe import OF_EVALUATIONS
from ftui.runs.events import EvaluationDone, RunStarted
from ftui.runs.journal import Tail
from ftui.runs.manifest import Manifest
from ftui.runs.records.result_lines import LOADERS
from ftui.runs.run_folder import Run
from ftui.system.redact import redact

NOT_MEASURED = "not measured"
CARD = "README.md"
CERTIFICATE = "certificate.json"  # beside a merged model, or a GGUF file
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """What a card says. Losses and measures are those of the evaluation rows; `None` was not measured.

    `kind`: `adapter`, `model` or `GGUF`. `fingerprints` and `versions`: as in a manifest.
    """

    name: str
    kind: str
    profile: Profile
    weights: str
    loss_before: float | None
    loss: float | None
    fingerprints: Mapping[str, str]
    versions: Mapping[str, str]
    start: RunStarted | None = None
    measures: Mapping[str, float | None] = field(default_factory=dict)
    score: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)


def write_card(facts: CardFacts) -> str:
    """The text of the card, with YAML in front for the hub."""
    table = "\n".join(f"| {name} | {value} |" for name, value in _rows(facts))
    text = f"---\n{_front(facts)}\n---\n\n# {facts.name}\n\nTrained with ftui.\n\n| | |\n|---|---|\n{table}\n"
    load = _how_to_load(facts)
    return redact(text + (f"\n```python\n{load}\n```\n" if load else ""))


def read_facts(run: Run, profile: Profile, manifest: Manifest, folder: Path) -> CardFacts:
    """What the files of a run say about weights in `folder`, whose manifest is `manifest`."""
    start, evaluations = read_journal(run, manifest.step)
    here = evaluation_at(evaluations, manifest.step)
    before = next((one.loss for one in evaluations if one.step == 0), None)
    names = {path.suffix for path in folder.iterdir()}
    is_adapter = (folder / "adapter_config.json").is_file()
    certificate = folder / CERTIFICATE
    return CardFacts(
        name=run.name,
        kind="GGUF" if ".gguf" in names else "adapter" if is_adapter else "model",
        profile=profile,
        weights=f"step {manifest.step}" + (f" of {start.max_steps}" if start else ""),
        loss_before=before,
        loss=None if here is None else here.loss,
        measures={} if here is None else here.extras,
        fingerprints=manifest.fingerprints,
        versions=manifest.versions,
        start=start,
        score="at the last token of prompt and answer" if profile.gives_scores else "",
        certificate=json.loads(certificate.read_bytes()) if certificate.is_file() else {},
    )


def evaluation_at(evaluations: Sequence[EvaluationDone], step: int) -> EvaluationDone | None:
    """The newest one of the weights of that step."""
    return next((one for one in reversed(evaluations) if one.step == step), None)


def read_journal(run: Run, step: int) -> tuple[RunStarted | None, list[EvaluationDone]]:
    """The newest beginning of an attempt that led to `step`, and the evaluations that count."""
    start: RunStarted | None = None
    evaluations: list[EvaluationDone] = []
    for record in Tail(run.journal).records():
        if isinstance(record, RunStarted) and record.start_step <= step:
            start = record
            evaluations = [one for one in evaluations if one.step <= record.start_step]
        elif isinstance(record, EvaluationDone):
            evaluations.append(record)
    return start, evaluations


VALUE_HEAD_KEPT = "not part of it: with the state of the run's checkpoints (resume/value_head.safetensors)"


def _front(facts: CardFacts) -> str:
    base = facts.profile.model.name_or_path or ""
    known = [f"base_model: {base}"] if _HUB_ID.fullmatch(base) else []  # the hub refuses a path of this disk
    library = {"adapter": "peft", "GGUF": "gguf"}.get(facts.kind, "transformers")
    return "\n".join([*known, f"library_name: {library}", "tags:\n- ftui"])


def _rows(facts: CardFacts) -> list[tuple[str, str]]:
    profile, start = facts.profile, facts.start
    made_into = " as trained" if facts.certificate else ""  # nobody has evaluated what was made of it
    losses = f"{_figure(facts.loss_before)} at step 0, {_figure(facts.loss)} here"
    rows = [
        ("base model", _describe_base(profile)),
        ("stage, method", f"{profile.run.stage}, {profile.adapter.method}"),
        *([("score", facts.score)] if facts.score else []),
        *([("value head", VALUE_HEAD_KEPT)] if profile.run.stage == "ppo" else []),
        *([("base stored in", _describe_bits(profile.adapter))] if profile.adapter.is_quantised else []),
        ("weights", facts.weights),
        *([] if "reward" in facts.measures else [(f"evaluation loss{made_into}", losses)]),
        *((MEASURES[name].short, _figure(facts.measures[name])) for name in OF_EVALUATIONS if name in facts.measures),
        ("learning rate", f"{profile.train.learning_rate:g}, {profile.train.lr_scheduler_type}"),
        ("effective batch", f"{profile.effective_batch if start is None else start.effective_batch}"),
        ("precision", profile.train.precision if start is None else start.precision),
        ("seed", f"{profile.train.seed}"),
    ]
    if start is not None:
        rows.append(
            (
                "data",
                f"{start.num_train_rows} rows, {units.count(start.num_train_tokens)} tokens an epoch, "
                f"{units.count(start.num_target_tokens)} of them trained on; {start.num_eval_rows} rows to evaluate on",
            )
        )
    rows += [(f"fingerprint, {name.replace('_', ' ')}", f"`{value}`") for name, value in facts.fingerprints.items()]
    rows.append(("versions", ", ".join(f"{name} {number}" for name, number in facts.versions.items())))
    return [*rows, *_certified(facts.certificate)]


def _certified(certificate: Mapping[str, object], inside: str = "certificate,") -> Iterator[tuple[str, str]]:
    """Its figures and words, without the lists in it, and without the folders of this disk."""
    for name, value in certificate.items():
        if name == "versions":  # they stand in a row of their own
            continue
        title = f"{inside} {name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _certified(value, title)
        elif isinstance(value, float):
            yield title, f"{value:.4g}"
        elif value is not None and not isinstance(value, list):
            text = str(value)
            yield title, (Path(text).name if text.startswith("/") else text).replace("|", "\\|")


def _describe_base(profile: Profile) -> str:
    base = profile.model.name_or_path
    if base is None:
        return "from scratch"
    revision = f" at {profile.model.revision}" if profile.model.revision else ""
    return f"`{Path(base).name if base.startswith('/') else base}`{revision}"


def _how_to_load(facts: CardFacts) -> str:
    """Python that loads what stands beside the card."""
    if facts.kind == "GGUF":
        return ""
    library, auto = LOADERS["lora" if facts.kind == "adapter" else "full"]
    scores = facts.profile.gives_scores
    name = auto + ("ForSequenceClassification" if scores else "ForCausalLM")
    labels = ", num_labels=1" if scores else ""
    return f'from {library} import {name}\nmodel = {name}.from_pretrained("PATH OR HUB NAME"{labels})'


def _describe_bits(adapter: AdapterSection) -> str:
    double = ", scales quantised too" if adapter.bnb_4bit_use_double_quant else ""
    return "8 bits (LLM.int8)" if adapter.load_in_8bit else f"4 bits ({adapter.bnb_4bit_quant_type}{double})"


def _figure(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.4f}"
