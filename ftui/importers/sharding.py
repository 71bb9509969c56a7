"""ZeRO and FSDP: what other tools' files say of what GPUs divide among them, and of what lies in host memory."""

import re
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import OFF, Rule, drops, each
from ftui.importers.values import Unfit, flag, is_on, text, whole, word

GROUP, NODES = "hardware.dp_shard_size", "hardware.nodes"
SHARD, OFFLOAD, PROCESSES = "hardware.shard", "hardware.offload", "hardware.num_processes"
STAGES = {0: "none", 1: "state", 2: "state", 3: "all"}
STRATEGIES = {
    "full_shard": "all", "shard_grad_op": "state", "no_shard": "none", "hybrid_shard": "all",
    "hybrid_shard_zero2": "state", "hybrid_full_shard": "all",
}  # fmt: skip
NUMBERS = ("", "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
"""What accelerate means by a number in the place of a strategy."""
SHIPPED = re.compile(r"(?:^|/)(?:ds_z|zero)([0-3])(|_[a-z0-9_]+)\.json$")
WRAPS = ("auto_wrap", "size_based_auto_wrap")
WHOLE = "none: each GPU has all of it, as here where nothing is said"
SMALL = "each GPU has all of the optimizer's state: that of an adapter is small"
ABSENT = "it is not here, or cannot be read: import that file itself"
LAYERS = "ftui divides layer by layer"
KNOBS = "how large the pieces are that are sent, and when: ftui has no such knobs"
SAVED = "checkpoints and final/ are whole safetensors files, one format for any number of GPUs"
LOADED = "each process reads what it needs of the files"
BY_LAUNCHER = "how many GPUs there are is said by the launcher there: set it"
WHOLE_HEAD = "stage ppo has a value head beside all weights, which is whole on each process here"
SAID = "the trainer's own key says it"


def _stage(draft: ProfileDraft, leaf: Leaf) -> None:
    stage = whole(leaf.value)
    if stage not in STAGES:
        raise Unfit("ZeRO has stages 0 to 3", SHARD)
    _shards(draft, leaf, STAGES[stage], f"ZeRO {stage}")


def _strategy(draft: ProfileDraft, leaf: Leaf) -> None:
    """FSDP's strategy: a word, its number, or words of transformers' `fsdp`, of which one may be `offload`."""
    if isinstance(leaf.value, bool):
        return _shards(draft, leaf, "all" if leaf.value else "none", "FSDP")
    if leaf.value == []:  # as transformers writes down that it is off
        return draft.drop(leaf, OFF)
    given = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    words = [part for one in given for part in re.split(r"[\s,]+", text(one).strip().lower()) if part]
    words = [NUMBERS[int(one)] if one.isdigit() and 0 < int(one) < len(NUMBERS) else one for one in words]
    if strange := [one for one in words if one not in (*STRATEGIES, *WRAPS, "offload", "true")]:
        raise Unfit(f"FSDP has no {', '.join(strange)}", SHARD)
    if "offload" in words:
        _add_offload(draft, "state", leaf.name)
        _add_offload(draft, "base", leaf.name)
    draft.replicates_nodes |= any(one.startswith("hybrid") for one in words)
    _shards(draft, leaf, next((STRATEGIES[one] for one in words if one in STRATEGIES), "all"), "FSDP")


def _reshards(draft: ProfileDraft, leaf: Leaf) -> None:
    """FSDP2: whether weights are divided again after the forward pass; FSDP1's strategies stand here, too."""
    try:
        _shards(draft, leaf, "all" if flag(leaf.value) else "state", "FSDP")
    except Unfit:
        _strategy(draft, leaf)


def _shards(draft: ProfileDraft, leaf: Leaf, shard: str, tool: str) -> None:
    if shard == "none":
        draft.drop(leaf, WHOLE)
    else:
        draft.carry(leaf, SHARD, shard, tool)


def _add_offload(draft: ProfileDraft, part: str, note: str) -> list[str]:
    parts = sorted({*(draft.given(OFFLOAD) or []), part})
    draft.values[("hardware", "offload")] = parts
    draft.notes.setdefault(("hardware", "offload"), note)
    return parts


def offloads(part: str) -> Rule:
    """The device that a part lies on: `none`, `cpu` or `nvme`."""

    def rule(draft: ProfileDraft, leaf: Leaf) -> None:
        device = word(leaf.value)
        if device in ("none", "false", "no"):
            draft.drop(leaf, OFF)
        elif device in ("cpu", "nvme", "true"):
            note = "a disk there, host memory here" if device == "nvme" else ""
            draft.carry(leaf, OFFLOAD, _add_offload(draft, part, note), note)
        else:
            raise Unfit("neither none, cpu nor nvme", OFFLOAD)

    return rule


def _offloads_all(draft: ProfileDraft, leaf: Leaf) -> None:
    """FSDP's CPU offload: weights, and the optimizer's state with them."""
    if not flag(leaf.value):
        draft.drop(leaf, OFF)
        return
    _add_offload(draft, "state", "FSDP")
    draft.carry(leaf, OFFLOAD, _add_offload(draft, "base", "FSDP"), "FSDP")


def group_size(draft: ProfileDraft, leaf: Leaf) -> None:
    """How many processes divide a model among them, where others have the same."""
    if (size := whole(leaf.value)) > 1:
        draft.carry(leaf, GROUP, size)
    else:
        draft.drop(leaf, OFF)


def _checkpoints(draft: ProfileDraft, leaf: Leaf) -> None:
    if flag(leaf.value):
        draft.carry(leaf, "train.activation_checkpointing", True)
    else:
        draft.drop(leaf, OFF)


def _by_name(draft: ProfileDraft, leaf: Leaf) -> None:
    """The name of DeepSpeed's file, which is not here: those that Axolotl and LLaMA-Factory come with say the stage."""
    name = text(leaf.value)
    if (shipped := SHIPPED.search(name)) is None:
        why = "it is not here, or cannot be read: import that file, and copy what it says of [hardware]"
        raise Unfit(why, SHARD)
    stage, offload = int(shipped[1]), shipped[2]
    if "offload" in offload:
        if stage == 3:  # the earlier ones keep all weights on each GPU
            _add_offload(draft, "base", "by the name of the file")
        if "params" not in offload:
            _add_offload(draft, "state", "by the name of the file")
    _shards(draft, leaf, STAGES[stage], f"ZeRO {stage}, by the name of the file, which is not here")


def _with(prefix: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {f"{prefix}{name}": rule for name, rule in rules.items()}


def zero_rules(prefix: str) -> dict[str, Rule]:
    """The keys of DeepSpeed's `zero_optimization`, by the names they have with this prefix."""
    return _with(prefix, {
        "stage": _stage,
        "offload_optimizer.device": offloads("state"),
        "offload_param.device": offloads("base"),
        "cpu_offload": offloads("state"),
        "cpu_offload_params": offloads("base"),
        **drops("host memory is used as it comes: how it is kept there is not said in a profile",
                "offload_optimizer.* offload_param.* cpu_offload_use_pin_memory"),
        **drops(KNOBS, "allgather_partitions allgather_bucket_size overlap_comm reduce_scatter reduce_bucket_size"
                " contiguous_gradients stage3_* prefetch_bucket_size max_live_parameters max_reuse_distance"
                " param_persistence_threshold model_persistence_threshold sub_group_size round_robin_gradients"
                " use_multi_rank_bucket_allreduce use_all_reduce_for_fetch_params module_granularity_threshold"
                " legacy_stage1 ignore_unused_parameters memory_efficient_linear log_trace_cache_warnings"
                " override_module_apply pipeline_loading_checkpoint"),
        **drops(SAVED, "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save"
                " stage3_gather_fp16_weights_on_model_save elastic_checkpoint load_from_fp32_weights"),
        "mics_shard_size": group_size,
        **drops(KNOBS, "mics_hierarchical_params_gather"),
        **drops("ZeRO++ is not built", "zero_hpz_partition_size zero_quantized_weights zero_quantized_gradients"
                " zero_quantized_nontrainable_weights zeropp_loco_param.*", matters=True),
        **drops("ftui knows no such key of ZeRO", "*", matters=True),
    })  # fmt: skip


def fsdp_rules(prefix: str) -> dict[str, Rule]:
    """The keys of `fsdp_config`, by the names they have with this prefix, which accelerate's have before them again."""
    plain: dict[str, Rule] = {
        "sharding_strategy": _strategy,
        "reshard_after_forward": _reshards,
        **each(_offloads_all, "offload_params cpu_offload"),
        "activation_checkpointing": _checkpoints,
        **drops("FSDP2 is used", "version use_orig_params"),
        **drops(LAYERS, "auto_wrap_policy transformer_layer_cls_to_wrap transformer_cls_names_to_wrap min_num_params"),
        **drops(KNOBS, "backward_prefetch backward_prefetch_policy forward_prefetch limit_all_gathers"),
        **drops(LOADED, "cpu_ram_efficient_loading sync_module_states"),
        **drops(SAVED, "state_dict_type final_state_dict_type"),
        **drops("what is trained is stored in 32 bits, and computed in train.precision", "mixed_precision_policy"
                " mixed_precision mp_policy"),
        **drops("XLA and TPUs are not built", "xla xla_fsdp_v2 xla_fsdp_settings xla_fsdp_settings.*"
                " xla_fsdp_grad_ckpt", matters=True),
        **drops("ftui knows no such key of FSDP", "*", matters=True),
    }  # fmt: skip
    return _with(prefix, plain | _with("fsdp_", plain))


TRAINER_SHARDING: dict[str, Rule] = {
    "fsdp": _strategy,
    "fsdp[]": _strategy,
    **fsdp_rules("fsdp_config."),
    "fsdp_version": drops("FSDP2 is used", "fsdp_version")["fsdp_version"],
    **drops(LAYERS, "fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params"),
    **drops(SAVED, "fsdp_final_state_dict_type"),
    **drops(LOADED, "qlora_sharded_model_loading"),
    "deepspeed": _by_name,
    **drops("its file is not here, or cannot be read: copy what it says of [hardware]", "fsdp_config", matters=True),
    **drops(SAID, "deepspeed.*"),
    **zero_rules("deepspeed.zero_optimization."),
}  # fmt: skip
"""What transformers' TrainingArguments and the tools around them have of it; `deepspeed.` is DeepSpeed's file."""

ZERO_OF_LAUNCHER = {
    "zero_stage": _stage,
    "offload_optimizer_device": offloads("state"),
    "offload_param_device": offloads("base"),
    **drops("host memory is used as it comes", "offload_optimizer_nvme_path offload_param_nvme_path"),
    **drops(LOADED, "zero3_init_flag"),
    **drops(SAVED, "zero3_save_16bit_model"),
}
"""What accelerate says of DeepSpeed, in its file and on its command line."""


def settle_sharding(draft: ProfileDraft) -> None:
    """When the whole file is read: what goes together, and what FSDP does where nothing is said."""
    kinds = [draft.raw(f"{table}distributed_type") for table in ("", "launcher.config_file.")]
    uses_fsdp = "FSDP" in map(str, kinds) or is_on(draft.raw("launcher.use_fsdp"))
    uses_fsdp = uses_fsdp or draft.raw("fsdp_version") is not None
    method: Any = draft.given("adapter.method") or "lora"
    is_whole = draft.given("run.stage") == "ppo" and method == "full"
    if is_whole and (shard := draft.given(SHARD)) is not None:
        draft.take_back(SHARD, WHOLE_HEAD, matters=shard != "none")
    elif uses_fsdp and not is_whole and draft.given(SHARD) is None:
        draft.suppose(SHARD, "all", "FSDP's default")
    if draft.given(SHARD) == "state" and method != "full":
        draft.take_back(SHARD, SMALL)
    if draft.given(SHARD) == "all" and "base" in (draft.given(OFFLOAD) or []):
        divided = f'{SHARD} = "all" divides the base; to offload it, too, is not built'
        if draft.given(OFFLOAD) == ["base"]:
            draft.take_back(OFFLOAD, divided, matters=True)
        else:
            draft.values[("hardware", "offload")] = ["state"]
            draft.drop_part(OFFLOAD, "base", divided)
    if method == "full" and "base" in (draft.given(OFFLOAD) or []):
        draft.values[("hardware", "offload")] = ["state"]  # no weight is frozen: FSDP's offload is that of the state
    if "base" in (draft.given(OFFLOAD) or []):
        draft.suppose_again("train.activation_checkpointing", True, "which an offloaded base needs")
    if draft.given(SHARD) is not None and draft.given(PROCESSES) is None:
        draft.leave_open(PROCESSES, 2, BY_LAUNCHER)
    _settle_groups(draft)


def _settle_groups(draft: ProfileDraft) -> None:
    """HYBRID_SHARD divides within a machine; how many GPUs that has is said by two other keys, or not at all."""
    if draft.given(SHARD) is None:
        if draft.given(GROUP) is not None:
            draft.take_back(GROUP, "nothing is divided")
        return
    number, nodes = draft.given(PROCESSES), draft.given(NODES)
    if not draft.replicates_nodes or draft.given(GROUP) is not None:
        return
    if nodes is None:
        draft.unsaid.append(f"{GROUP}: HYBRID_SHARD divides within a machine; with several set it to the GPUs of one")
    elif number % nodes == 0 and number > nodes:
        draft.suppose(GROUP, number // nodes, "HYBRID_SHARD: the GPUs of one machine")


def forget_processes(draft: ProfileDraft) -> None:
    """When the profile has been checked: two processes that nobody asked for, and nothing that they divide."""
    line = f"{PROCESSES}: {BY_LAUNCHER}"
    if draft.given(SHARD) is None and line in draft.unsaid:
        draft.unsaid.remove(line)
        draft.take_back(PROCESSES, "")
