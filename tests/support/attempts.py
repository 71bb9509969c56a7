"""Runs of the whole real engine inside this process: attempts, one killed in between, and final/ loaded by others."""

from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from ftui.engine.models.model_parts import autocast
from ftui.engine.models.quantization import keep_layout
from ftui.engine.recipe import train
from ftui.engine.runtime.control_flags import Control
from ftui.engine.runtime.event_writer import EventWriter
from ftui.engine.runtime.request_inbox import RequestInbox
from ftui.engine.system.device import find_hardware
from ftui.engine.training.collate import collate
from ftui.engine.training.prepare import prepare
from ftui.engine.training.step import StepRunner
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run, RunFacts
from tests.support.losses import summed_loss

RUN_ID = "0123456789abcdef"


class Killed(BaseException):
    """What happens to an engine, in a process that goes on."""


def attempt(run: Run, profile: Profile, number: int = 1) -> int:
    """One attempt of a run; the first one makes its folder. The exit code."""
    if number == 1:
        run.folder.mkdir(parents=True)
        run.profile.write_text(to_toml(profile))
        facts = RunFacts(run_id=RUN_ID, name=run.name, created=0.0, profile_name="test")
        run.facts.write_bytes(msgspec.json.encode(facts))
    events, control = EventWriter(run, attempt=number, token="test"), Control()
    control.open(RequestInbox(run, events))
    return train(run, profile, events, control)


def killed_attempt(run: Run, profile: Profile, step: int, patch: pytest.MonkeyPatch, number: int = 1) -> None:
    """An attempt (the first one) that ends as the step after `step` begins."""
    run_step = StepRunner.run

    def deadly(self: StepRunner, *boundary: Any) -> Any:
        if self.state.step == step:
            raise Killed
        return run_step(self, *boundary)

    with patch.context() as patched, pytest.raises(Killed):
        patched.setattr(StepRunner, "run", deadly)
        attempt(run, profile, number)


def records(run: Run, kind: type) -> list[Any]:
    """The records of one kind in the journal and the metrics."""
    found = [*Tail(run.journal).read(), *Tail(run.metrics).read()]
    return [record for record in found if isinstance(record, kind)]


def plain_loss(profile: Profile, run: Run) -> float:
    """The evaluation loss of final/, loaded by PEFT or transformers alone, in the run's own precision."""
    from peft import AutoPeftModelForCausalLM

    hardware = find_hardware(profile)
    auto = AutoPeftModelForCausalLM if (run.final / "adapter_config.json").exists() else AutoModelForCausalLM
    options: dict[str, Any] = {"dtype": hardware.compute_dtype if profile.adapter.is_lora else "auto"}
    if profile.adapter.is_quantised:
        options["quantization_config"] = _quantisation(profile)
    model = auto.from_pretrained(run.final, **options)
    if profile.adapter.is_quantised:
        keep_layout(model)
    prepared = prepare(profile, run.folder / "cache", lambda detail: None)
    rows = prepared.evaluation
    assert rows is not None
    batch = collate([[rows.sequences[int(i)]] for i in rows.indices], int(prepared.tokenizer.pad_token_id or 0))
    with torch.no_grad(), autocast(hardware, keeps_casts=True):
        return float(summed_loss(model.eval(), batch)) / len(batch.target_ids)


def _quantisation(profile: Profile) -> BitsAndBytesConfig:
    section = profile.adapter
    if section.load_in_8bit:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=section.bnb_4bit_quant_type,
        bnb_4bit_use_double_quant=section.bnb_4bit_use_double_quant,
        bnb_4bit_compute_dtype=find_hardware(profile).compute_dtype,
    )  # fmt: skip
