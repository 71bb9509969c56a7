"""What the training libraries add to an estimate: counts of the rows, the memory of the model itself, a probe of it."""

import dataclasses
import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any

import msgspec
from pydantic import ValidationError

from ftui.dataset.row_counts import RowCounts
from ftui.errors import (
    DataError,
    DiskError,
    FtuiError,
    HardwareError,
    ModelError,
    NotSimulatedError,
    ProfileError,
    UnavailableError,
)
from ftui.estimate import closed_form, timing
from ftui.estimate.api import Known, setup_for, shape_for, suggestions
from ftui.estimate.fit import Change
from ftui.estimate.levers import list_needed
from ftui.estimate.measurements import PhaseMeasured, ProbeRecord, describe_setting, describe_subject, save_probe
from ftui.estimate.placement.scoring_model import add_scoring_model
from ftui.estimate.result import Memory
from ftui.hardware.devices import Card
from ftui.helper.client import Helper
from ftui.models.bytes_per_token import bytes_per_token
from ftui.profile.consent import check_reward_code
from ftui.profile.origins import Key
from ftui.profile.schema import Profile


def with_libraries(helper: Helper, profile: Profile, card: Card, known: Known) -> Known:
    """`known` with the rows counted and the memory simulated, or with the reasons why that cannot be done.

    Most often the model is not on this machine yet.

    Raises:
        FtuiError: a run of the profile on the card would be refused, whatever its rows are.
    """
    try:
        known = dataclasses.replace(known, counts=count_rows(helper, profile, card))
    except UnavailableError as error:
        known = dataclasses.replace(known, **({"counting_problem": error} | _counted_in_bytes(helper, profile, error)))
    except FtuiError as error:
        known = dataclasses.replace(known, counting_problem=error)
    if known.parallel != "ddp":
        return known
    try:
        return dataclasses.replace(known, simulated=simulate_memory(helper, profile, card, known.counts))
    except (UnavailableError, NotSimulatedError) as error:
        return dataclasses.replace(known, simulation_problem=error)


def _counted_in_bytes(helper: Helper, profile: Profile, problem: UnavailableError) -> dict[str, Any]:
    """The rows' counts without the tokenizer, which could not be fetched, or what is wrong with them whatever it is.

    Where such tokens have no room, neither: a byte each, they take more than a run's.
    """
    shape = shape_for(profile)
    size = bytes_per_token(None if isinstance(shape, str) else shape.vocab_size)
    try:
        return {"counts": msgspec.convert(helper.ask("count_bytes", profile=profile, bytes_per_token=size), RowCounts)}
    except DiskError as error:
        return {"counting_problem": UnavailableError(f"{problem.message} {error.message}", hint=problem.hint)}
    except FtuiError as error:
        return {"counting_problem": error}


def count_rows(helper: Helper, profile: Profile, card: Card | None = None) -> RowCounts:
    """Rows, tokens and steps, as a run would have them on this card (`None`: on the device of this machine).

    Raises:
        FtuiError: such a run would be refused (engine/check_profile.py), its rows are wrong, or the helper died.
    """
    facts = None if card is None else dataclasses.asdict(card)
    return msgspec.convert(helper.ask("count_rows", profile=profile, card=facts), RowCounts)


def simulate_memory(helper: Helper, profile: Profile, card: Card, counts: RowCounts | None) -> Memory:
    """The memory of a run, from the real model on the meta device.

    Raises:
        FtuiError: the model's files are missing, or the helper died.
    """
    rows = {name: getattr(counts, name, None) for name in ("longest", "longest_example")}
    answer = helper.ask("simulate", profile=profile, card=dataclasses.asdict(card), **rows)
    return msgspec.convert(answer, Memory)


def find_changes(helper: Helper | None, profile: Profile, card: Card, known: Known) -> list[Change]:
    """Changes that make it fit, or use the card better; each has been simulated before it is told.

    Without a helper, and where the model cannot be simulated (it is not on this machine and not known, or brings its
    own code), they are in closed form.

    Raises:
        FtuiError: a run of the profile on the card would be refused, or the helper died.
    """
    setup = setup_for(profile, card, known)
    if isinstance(setup, str):
        return []
    if helper is None or known.parallel != "ddp" or known.simulation_problem is not None:
        return suggestions(setup, known)

    def simulate(values: Mapping[Key, Any]) -> Memory | None:
        try:
            return simulate_memory(helper, with_values(profile, values), card, known.counts)
        except (UnavailableError, NotSimulatedError):
            raise
        except (ModelError, HardwareError, DataError, ProfileError):  # the engine would refuse that change
            return None

    try:
        if known.simulated is None and not list_needed(setup):
            known = dataclasses.replace(known, simulated=simulate_memory(helper, profile, card, known.counts))
        return suggestions(setup, known, simulate)
    except (UnavailableError, NotSimulatedError):
        return suggestions(setup, known)


def with_values(profile: Profile, values: Mapping[Key, Any]) -> Profile:
    """The profile with other values for some keys, as they would be written ("none" turns a key off).

    Raises:
        ProfileError: it is not valid with them.
    """
    tables = profile.model_dump(mode="json")
    for key, value in values.items():
        table = tables
        for name in key[:-1]:
            table = table[name]
        before, value = table.get(key[-1]), None if value == "none" else value
        table[key[-1]] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    try:
        return Profile.model_validate_json(json.dumps(tables))
    except ValidationError as error:
        raise ProfileError(f"The profile is not valid with that change: {error}.") from error


def carry_over(simulated: Memory, card: Card, other: Card) -> Memory | None:
    """A simulation for one NVIDIA card as one for another whose kernels are the same; `None` where they are not."""
    if (card.kind, other.kind) != ("cuda", "cuda") or _kernels(card) != _kernels(other):
        return None
    more = other.context - card.context
    return dataclasses.replace(
        simulated,
        process=simulated.process + more, low=simulated.low + more, high=simulated.high + more,
        breakdown={**simulated.breakdown, "context": simulated.breakdown["context"] + more},
    )  # fmt: skip


def _kernels(card: Card) -> tuple[bool, bool]:
    return card.has_bf16, card.capability in (90, 100, 103)  # cuDNN's attention comes first there


def probe(profile: Profile, card: Card, on_detail: Callable[[str], object], allow: Collection[str] = ()) -> ProbeRecord:
    """Take steps and an evaluation with the longest rows on `card`, this machine's, and keep what was measured.

    Raises:
        FtuiError: it does not run here, or does not fit.
    """
    check_reward_code(profile, allow, is_new=False)
    with closing(Helper(allow)) as helper:  # a process of its own: it takes the device
        answer = helper.ask("probe", on_detail=on_detail, profile=profile)
    counts = RowCounts(
        longest=answer["longest"],
        longest_example=answer["longest_example"],
        num_sequences=answer["micro_batch"],
        num_eval_rows=answer["eval_batch"],
    )
    setup = setup_for(profile, card, Known(counts=counts))
    if isinstance(setup, str):
        raise FtuiError(f"It was measured, but cannot be kept for later estimates: {setup}")
    if answer["process"] is None:
        raise HardwareError("The driver hides how much memory is used here: nothing could be measured.")
    setup = dataclasses.replace(setup, num_processes=1)
    closed = add_scoring_model(closed_form.memory(setup), setup.scoring or 0)
    record = ProbeRecord(
        what=describe_subject(setup), setting=describe_setting(setup), estimated=closed.process,
        allocated=answer["allocated"], reserved=answer["reserved"], process=answer["process"],
        step_seconds=answer["step_seconds"], num_tokens=answer["num_tokens"], versions=answer["versions"],
        time=time.time(), rollout=msgspec.convert(answer.get("rollout", {}), dict[str, PhaseMeasured]),
        estimated_seconds=timing.step_seconds(dataclasses.replace(setup, accumulation=1), answer["num_tokens"]),
    )  # fmt: skip
    try:
        save_probe(record)
    except OSError as error:
        raise DiskError(f"What was measured could not be kept: {error}.") from error
    return record
