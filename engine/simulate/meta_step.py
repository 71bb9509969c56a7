"""One training step and one evaluation of a model on `meta`, through the functions of the engine's own loop."""

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ftui.profile.schema import Profile
from ftui.profile.sections.preference import COMPARING_STAGES, REFERENCE_STAGES
from ftui.profile.sections.sampled_stages import POLICY_STAGES

from ..distributed.process_group import make_buckets
from ..models.model_parts import LossModule
from ..objectives import make_objective
from ..objectives.loss import Batch
from ..optim.loss_scaler import FIRST_SCALE
from ..optim.optimizer import BITS_AND_BYTES, allocate_state, make_optimizer
from ..system.device import Hardware
from ..training.forward_backward import backpropagate, clip_gradients
from .autocast import Autocast
from .depth import find_layers, keep_layers, layer_kinds, plan_layers, unfold
from .kernels import Kernels
from .meta_model import META, MetaModel
from .meta_ops import assume_full_rows
from .quantized_layers import multiply_in_8bit
from .trace import Loader, Trace, label_trained, mark_layer, note_model
from .tracker import MemoryTracker

AMOUNTS = dict.fromkeys(("tokens", "targets", "examples", "chosen_targets"), 1)
"""Of a step whose losses have no values to divide."""


@dataclass(frozen=True)
class BatchShape:
    """What goes through the model: examples of a micro-batch and of an evaluation batch (0: none), the lines of each,
    tokens of a line.
    """

    micro_batch: int
    eval_batch: int
    num_lines: int
    length: int


def trace_step(
    made: MetaModel, profile: Profile, kernels: Kernels, rows: BatchShape, load: Loader | None, *, full_depth: bool
) -> Trace:
    """The events of loading, of allocating the optimizer's state, of one step and of one evaluation batch.

    Of a step with several micro-batches the first two are taken: from the second on gradients are added to those that
    are there. Without `full_depth` only a few layers are computed, and their events are told again for the others.
    """
    tracker = MemoryTracker(
        kernels, vocab_size=made.config.get_text_config().vocab_size, truth=not profile.data.packing
    )
    if load is not None:
        load(tracker, made.model)
    note_model(tracker, made.model)
    with ExitStack() as stack:
        stack.enter_context(kernels.chosen())
        if profile.adapter.load_in_8bit:
            stack.enter_context(multiply_in_8bit(made.hardware.device.type))
        stack.enter_context(assume_full_rows(rows.length))
        with tracker:
            tracker.enter("optimizer", -1)
            optimizer = make_optimizer(made.model, profile.train)
            if hasattr(optimizer, "is_paged"):
                optimizer.is_paged = False  # pages need a GPU; profile_memory.py says where they are
            allocate_state(optimizer)
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        label_trained(tracker, weights, optimizer)
        plan = None
        if (layers := find_layers(made.base)) and not full_depth:  # named here, so that their weights live on
            plan = plan_layers(layer_kinds(made.base, layers))
            keep_layers(made.base, plan)
        for number, layer in enumerate(find_layers(made.base)):
            mark_layer(tracker, number, layer)
        absent = _absent(tracker, made.model, weights)
        with tracker:
            _step(tracker, made, profile, rows, optimizer, weights, absent)
            if rows.eval_batch:
                _evaluate(tracker, made, profile, rows)
        trace = Trace(tuple(tracker.events), tuple(tracker.parts), tuple(tracker.marks))
    return trace if plan is None else unfold(trace, plan)


def _absent(tracker: MemoryTracker, model: nn.Module, weights: list[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Gradients for the weights of layers that are not computed: told layers' events stand for them."""
    present = {id(weight) for weight in model.parameters()}
    gradients = [
        (weight, torch.empty(weight.shape, dtype=weight.dtype, device=META))
        for weight in weights
        if id(weight) not in present
    ]
    for _, gradient in gradients:
        tracker.ignore(gradient)
    return gradients


def _step(
    tracker: MemoryTracker,
    made: MetaModel,
    profile: Profile,
    rows: BatchShape,
    optimizer: Any,
    weights: list[nn.Parameter],
    absent: list[tuple[nn.Parameter, Tensor]],
) -> None:
    scale = FIRST_SCALE if made.hardware.precision == "fp16" else 1.0

    def enter(phase: str, number: int) -> None:
        tracker.enter(phase, number)
        tracker.take_workspace()  # outside the layers, so that it is told once

    def computed(_: nn.Module, __: Any, output: Any) -> None:
        """The backward pass comes next; with its end, what follows is in no layer."""
        done = torch.autograd.Variable._execution_engine.queue_callback
        next(iter(output.sums.values())).register_hook(lambda _: done(lambda: tracker.enter_layer(None)))
        enter("backward", tracker.marks[-1].iteration)

    module = loss_module(made, profile)
    module.register_forward_hook(computed)
    for number in range(min(2, profile.accumulation)):
        enter("forward", number)
        backpropagate(
            module, _batch(rows, rows.micro_batch, profile, packed=profile.data.packing and made.masks), AMOUNTS, scale
        )
        label_trained(tracker, weights, optimizer)
    for weight, gradient in absent:
        weight.grad = gradient
    tracker.enter("optimizer", 0)
    _add_over_ranks(weights, profile.hardware.num_processes)
    clip_gradients(weights, scale, profile.train.max_grad_norm)
    if profile.train.optim not in BITS_AND_BYTES:  # theirs work in place, without a byte of their own
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _evaluate(tracker: MemoryTracker, made: MetaModel, profile: Profile, rows: BatchShape) -> None:
    tracker.enter("evaluation", 0)
    module = loss_module(made, profile).eval()
    with torch.no_grad():
        module(_batch(rows, rows.eval_batch, profile, packed=False))
    module.train()


def loss_module(made: MetaModel, profile: Profile) -> LossModule:
    """The engine's, its autocast that of the simulated device."""
    stage = make_objective(profile)
    make = partial(_autocast, made.hardware)

    def loss(model: nn.Module, batch: Batch) -> Any:
        with make():
            return stage.loss(model, batch)

    for module in made.model.modules():  # what is computed again is so under the same autocast, anew
        again = getattr(module, "_gradient_checkpointing_func", None)
        if again is not None:
            module._gradient_checkpointing_func = partial(again, context_fn=lambda: (nullcontext(), make()))
    return LossModule(made.model, replace(stage, loss=loss), Hardware(torch.device("cpu"), "fp32", 1, "", None))


def _autocast(hardware: Hardware) -> Any:
    if hardware.precision == "fp32":
        return nullcontext()
    return Autocast(hardware.device.type, hardware.compute_dtype)


def _batch(rows: BatchShape, num_examples: int, profile: Profile, *, packed: bool) -> Batch:
    """Full rows, every token but the first a target."""
    num_rows, length = num_examples * rows.num_lines, rows.length
    num_targets = num_rows * (length - 1)
    stage, sampled = profile.run.stage, profile.samples_answers
    is_compared = stage in COMPARING_STAGES | POLICY_STAGES
    has_reference = stage in REFERENCE_STAGES or (stage == "grpo" and profile.grpo.beta > 0)

    def of_tokens() -> Tensor | None:
        return torch.empty(num_targets, device=META) if stage == "ppo" else None

    def numbers(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int64, device=META)

    ids, positions = numbers(num_rows, length), numbers(num_rows, length) if packed else None
    targets = numbers(num_targets), numbers(num_targets)
    return Batch(
        ids, positions, *targets, AMOUNTS | {"examples": num_examples}, numbers(num_rows),
        numbers(num_targets) if is_compared else None,
        torch.empty(num_targets, device=META) if has_reference else None,
        ends=numbers(num_examples * profile.per_example) if profile.gives_scores else None,
        advantages=torch.empty(num_targets if stage == "ppo" else num_rows, device=META) if sampled else None,
        old=of_tokens(), values=of_tokens(), returns=of_tokens(),
    )  # fmt: skip


def _add_over_ranks(weights: list[nn.Parameter], num_processes: int) -> None:
    """What `ProcessGroup.add_gradients` takes besides the gradients: a flat bucket of each type."""
    if num_processes > 1:
        make_buckets([weight.grad for weight in weights if weight.grad is not None])
