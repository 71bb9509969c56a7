"""The model of a profile, and all parts of a training put together around it."""

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from ftui.profile.schema import Profile
from ftui.profile.sections.preference import COMPARING_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES
from ftui.profile.serialize import fingerprint

from .checkpoints.reproducibility import Provenance, join_machines
from .checkpoints.resume import MADE_FROM
from .data.load_rows import LoadedData
from .distributed.load_shards import check_adapter, check_can_shard, load_shards
from .distributed.process_group import ProcessGroup, hide_ranks
from .models.adapter_files import adapter_fingerprint
from .models.attention import attention_for, settle_groups
from .models.files.fingerprints import weights_fingerprint
from .models.joined_rows import choose_layout, settle_joined_rows
from .models.load_model import load_model
from .models.methods import apply_method, storage_dtype
from .models.model_parts import LossModule, ModelParts
from .models.new_model import new_config, new_model
from .models.performance import check_layers, decoder_layers, disable_dropout, prepare_base, prepare_trained
from .models.quantization import keep_layout, quantized_loading
from .models.special_tokens import check_new_tokens, fit_embeddings
from .models.starting_point import StartingPoint
from .models.tokenizer import end_padding, tokenizer_fingerprint
from .objectives import make_objective
from .offload.base_layers import base_on_host
from .offload.host_state import keep_state_on_host
from .offload.load_packed import load_packed
from .offload.reference_weights import ReferenceWeights
from .offload.stored_activations import offload_activations
from .optim.optimizer import make_optimizer
from .reinforcement.value_head import add_value_head
from .rewards.score_with_model import find_reward_model
from .runtime.event_writer import EventWriter
from .system.device import Hardware
from .system.rng import rank_seed, seed_everything
from .training.prepare import TrainingData


def build_model(profile: Profile, data: TrainingData, hardware: Hardware, ranks: ProcessGroup | None = None) -> Any:
    """The model of the profile, as its method trains it. Draws from torch's generator, which the caller has seeded.

    With `ranks` it is divided among them as the profile says.

    Raises:
        ModelError: it cannot be loaded, or not trained as the profile says.
    """
    section, dtype = profile.model, storage_dtype(profile, hardware)
    if section.from_scratch is not None:
        config = new_config(section.from_scratch, data.tokenizer)
        model = new_model(config, dtype, attention_for(section.attn_implementation, config, hardware))
    else:
        assert data.folder is not None, "a model that is not new has a folder"
        quantised = quantized_loading(profile.adapter, hardware)
        options: Any = {"hardware": hardware, "scores": profile.gives_scores}
        if ranks is not None and profile.hardware.shard != "none":
            packing = quantised.get("quantization")
            model = load_shards(
                data.folder,
                section,
                dtype,
                ranks,
                quantization=packing,
                trained=not profile.adapter.is_lora,
                keeps_layers=profile.hardware.shard == "state",
                group_size=profile.hardware.dp_shard_size,
                **options,
            )
        elif quantised and "base" in profile.hardware.offload:
            model = load_packed(data.folder, section, dtype, quantised["quantization"], **options)
        else:
            model = load_model(data.folder, section, dtype, **options, **quantised)
        if profile.adapter.is_quantised:
            keep_layout(model)
    fit_embeddings(model, data.tokenizer, data.new_token_ids)
    if profile.gives_scores:
        data.tokenizer.pad_token = end_padding(data.tokenizer)
        model.config.get_text_config().pad_token_id = data.tokenizer.pad_token_id
    elif profile.data.chat_template is not None:  # generation with the result stops where a turn now ends
        model.generation_config.eos_token_id = data.stop_ids
    return prepare_model(model, profile, hardware, data)


def prepare_model(model: Any, profile: Profile, hardware: Hardware, start: StartingPoint) -> Any:
    """A base model, loaded or new, as it is trained."""
    settle_groups(hardware)
    settle_joined_rows()
    check_layers(model, profile.train, in_turn="base" in profile.hardware.offload)
    prepare_base(model, profile.train)
    trained = apply_method(model, profile, hardware, start)
    if profile.run.stage in COMPARING_STAGES | POLICY_STAGES:  # two answers, or model and reference: with all units
        disable_dropout(trained)
    if profile.run.stage == "ppo":
        add_value_head(trained)
    check_new_tokens(trained, start.new_token_ids)
    prepare_trained(trained, profile.train)
    if profile.hardware.shard != "none":
        check_can_shard(model)
        if profile.adapter.is_lora:
            check_adapter(model, trained)
    if profile.train.activation_offload:
        offload_activations(trained)
    return trained


def assemble(profile: Profile, data: TrainingData, model: Any, hardware: Hardware, ranks: ProcessGroup) -> ModelParts:
    """The model with its loss, its optimizer and its device. accelerate places and wraps it; it knows of no ranks.

    Raises:
        FtuiError: the ranks have different training rows, or packed ones would see each other in this model.
    """
    ranks.check_same(data.train.sequences.counts.fingerprint, "the training rows")
    with hide_ranks():
        accelerator = Accelerator(cpu=hardware.device.type == "cpu")
    objective = make_objective(profile)
    model.train()
    layers = decoder_layers(model) if "base" in profile.hardware.offload else []
    with base_on_host(layers, hardware.device):
        module = accelerator.prepare_model(LossModule(model, objective, hardware))
    if not ranks.is_leader:
        seed_everything(rank_seed(profile.train.seed, ranks.rank))  # the same weights, but dropout of its own
    optimizer = make_optimizer(model, profile.train)
    if "state" in profile.hardware.offload:
        keep_state_on_host(optimizer)
    reference = ReferenceWeights(model) if profile.keeps_reference else None  # a resume brings later ones
    return ModelParts(model, module, objective, optimizer, hardware, choose_layout(model, profile, hardware), reference)


def describe_provenance(
    profile: Profile, data: TrainingData, machines: Sequence[bytes], cache: Path, events: EventWriter
) -> Provenance:
    """What the run is made from and on: `machines` are those of all ranks, encoded. It takes the time to hash the base
    model, once for a cache: rank 0 only."""
    fingerprints = {"profile": fingerprint(profile)} | fingerprint_inputs(data, cache, events.progress)
    scorer = find_reward_model(profile.rewards, lambda detail: events.progress(detail=detail))
    if scorer is not None:
        fingerprints["reward_model"] = scorer.fingerprint(cache, events.progress)
    return Provenance(fingerprints, join_machines(machines))


def check_nodes_inputs(ranks: ProcessGroup, data: TrainingData, fingerprints: Mapping[str, str], cache: Path) -> None:
    """See that every node has the base, adapter, tokenizer and rows of node 0, whose `fingerprints` are.

    Raises:
        FtuiError: a node has others.
    """
    if ranks.num_nodes == 1:
        return
    known = ranks.from_leader(lambda: dict(fingerprints))

    def compare() -> None:
        if ranks.is_leader or not ranks.is_first_of_node:
            return
        own = fingerprint_inputs(data, cache, lambda: None)
        for name, value in own.items():
            if value != known.get(name):
                error, subject = MADE_FROM[name]
                raise error(
                    f"On {socket.gethostname()} (rank {ranks.rank}) {subject} is not what rank 0 has.",
                    hint="Every node needs the same files at the same path; for a model of the hub, name one commit "
                    "(model.revision).",
                )

    ranks.act_together(compare)


def fingerprint_inputs(data: TrainingData | LoadedData, cache: Path, tick: Callable[[], None]) -> dict[str, str]:
    """A hash of each thing that a run begins from; `tick` is called while the weights are read."""
    base = "from scratch"
    if data.folder is not None:
        base = data.commit or weights_fingerprint(data.folder, cache, tick)
    return {
        "data": data.train.sequences.counts.fingerprint,
        "evaluation_data": data.evaluation.sequences.counts.fingerprint if data.evaluation else "none",
        "tokenizer": tokenizer_fingerprint(data.tokenizer),
        "base_model": base,
        **({} if data.adapter is None else {"adapter": adapter_fingerprint(data.adapter)}),
    }
