"""The model of a profile, and all parts of a training put together around it."""

from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ftui.profile.schema import Profile
from ftui.profile.serialize import fingerprint
from ftui.runs.run_folder import Run

from .checkpoints.reproducibility import environment
from .distributed.process_group import Ranks, alone
from .models.adapter_files import adapter_fingerprint
from .models.attention import attention_for, settle_groups
from .models.files.fingerprints import weights_fingerprint
from .models.load_model import load_model
from .models.methods import Beginning, as_trained, storage_dtype
from .models.new_model import new_config, new_model
from .models.packing_check import check_packing
from .models.performance import prepare_base, prepare_trained
from .models.quantization import held, keep_layout
from .models.special_tokens import check_learned, fit_embeddings
from .models.tokenizer import tokenizer_fingerprint
from .objectives import stage_named
from .optim.optimizer import make_optimizer
from .runtime.control_flags import Control
from .runtime.disk_wait import Space
from .runtime.event_writer import Logbook
from .system.device import Hardware
from .system.rng import rank_seed, seed_everything
from .training.context import LossModule, Training, TrainState
from .training.prepare import Prepared


def model_of(profile: Profile, prepared: Prepared, hardware: Hardware) -> Any:
    section, dtype = profile.model, storage_dtype(profile, hardware)
    if section.from_scratch is not None:
        config = new_config(section.from_scratch, prepared.tokenizer)
        model = new_model(config, dtype, attention_for(section.attn_implementation, config, hardware))
    else:
        assert prepared.folder is not None, "a model that is not new has a folder"
        quantised = held(profile.adapter, hardware)
        model = load_model(prepared.folder, section, dtype, hardware=hardware, **quantised)
        if profile.adapter.is_quantised:
            keep_layout(model)
    fit_embeddings(model, prepared.tokenizer, prepared.new_token_ids)
    if profile.data.chat_template is not None:  # whoever generates with the result stops where a turn now ends
        model.generation_config.eos_token_id = prepared.stop_ids
    if profile.data.packing:
        check_packing(model, hardware)
    return made_ready(model, profile, hardware, prepared)


def made_ready(model: Any, profile: Profile, hardware: Hardware, prepared: Beginning) -> Any:
    """A base model, loaded or new, as it is trained."""
    settle_groups(hardware)
    prepare_base(model, profile.train)
    trained = as_trained(model, profile, hardware, prepared)
    check_learned(trained, prepared.new_token_ids)
    prepare_trained(trained, profile.train)
    return trained


def assembled(
    run: Run,
    profile: Profile,
    hardware: Hardware,
    ranks: Ranks,
    prepared: Prepared,
    model: Any,
    logbook: Logbook,
    control: Control,
    cache: Path,
) -> Training:
    """The parts of a run put together. accelerate places and wraps the model; it knows of no ranks."""
    ranks.check_same(prepared.train.sequences.counts.fingerprint, "the training rows")
    with alone():
        accelerator = Accelerator(cpu=hardware.device.type == "cpu")
    stage = stage_named(profile.run.stage, label_smoothing=profile.train.label_smoothing_factor)
    model.train()
    module = accelerator.prepare_model(LossModule(model, stage, hardware))
    if not ranks.is_leader:
        seed_everything(rank_seed(profile.train.seed, ranks.rank))  # the same weights, but dropout of its own
    return Training(
        run=run, profile=profile, hardware=hardware, prepared=prepared, stage=stage, model=model, module=module,
        optimizer=make_optimizer(model, profile.train), logbook=logbook, control=control, state=TrainState(),
        ranks=ranks, space=Space(run, logbook, control, profile.checkpoint.max_hold_minutes),
        fingerprints=_fingerprints(profile, prepared, cache, logbook) if ranks.is_leader else {},
        environment=environment(profile, hardware, str(model.config._attn_implementation), ranks.size),
    )  # fmt: skip


def _fingerprints(profile: Profile, prepared: Prepared, cache: Path, logbook: Logbook) -> dict[str, str]:
    """What the run is made from; a checkpoint can only be continued with the same."""
    held_out = prepared.evaluation
    base = "from scratch"
    if prepared.folder is not None:
        base = prepared.commit or weights_fingerprint(prepared.folder, cache, logbook.progress)
    return {
        "profile": fingerprint(profile),
        "data": prepared.train.sequences.counts.fingerprint,
        "evaluation_data": held_out.sequences.counts.fingerprint if held_out else "none",
        "tokenizer": tokenizer_fingerprint(prepared.tokenizer),
        "base_model": base,
        **({} if prepared.adapter is None else {"adapter": adapter_fingerprint(prepared.adapter)}),
    }
