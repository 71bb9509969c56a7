"""Answers with what a run has trained: models in memory from turn to turn, several sides to the same prompt at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_facts import ChatAnswer, ChatSides, ModelFacts
from ftui.profile.schema import Profile
from ftui.system.user_folders import cache_folder

from ..generation.conversation import Speaker, describe_model
from ..generation.load_trained import add_adapter, load_trained
from ..generation.sampling import Sampling
from ..models.adapter_files import starting_adapter
from ..models.weights import is_adapted
from .profile_text import given_profile
from .stop_flag import stop_flag

OnDetail = Callable[[str], None]
_speakers: list[Speaker] = []
_sides: list[ChatSides] = []  # what the speakers are of, once they are loaded


def open_chat(on_detail: OnDetail, chosen: dict[str, Any], profile: str) -> ModelFacts:
    """Load what answers, unless it is loaded. `chosen`: the `ChatSides`.

    Raises:
        FtuiError: a side cannot be loaded, or not here; or there is no base.
    """
    sides = msgspec.convert(chosen, ChatSides)
    if _sides != [sides]:
        parsed, folders = given_profile(profile), [None if side is None else Path(side) for side in sides.folders]
        if None in folders and parsed.model.from_scratch is not None:
            raise UsageError("This run has no base: its model was trained from scratch.")
        _sides.clear()
        _speakers.clear()  # before others are loaded
        _speakers.extend(load_speakers(parsed, folders, sides.device, on_detail, trained_on=sides.trained_on))
        _sides.append(sides)
    return describe_model(_speakers[0].model)


def load_speakers(
    profile: Profile, folders: list[Path | None], device: str | None, on_detail: OnDetail, *, trained_on: str
) -> list[Speaker]:
    """Adapters stand on one base; where weights of the base were trained, biases too, each side is a model of its own.

    Raises:
        FtuiError: see `load_trained`, which says what `trained_on` is.
    """
    cache = cache_folder(Path("cache"))
    if profile.adapter.is_lora:
        start = starting_adapter(profile.adapter, on_detail)  # what it continued from is part of where it began
        folders = [folder or start for folder in folders]
    if not profile.adapter.is_lora or profile.adapter.bias != "none":  # PEFT's biases stay on, whatever is switched off
        models = [
            load_trained(profile, folder, cache, on_detail, device=device, trained_on=trained_on) for folder in folders
        ]
        return [Speaker(one, "default" if is_adapted(one.model) else None) for one in models]
    adapters = [folder for folder in dict.fromkeys(folders) if folder is not None]
    first = adapters[0] if adapters else None
    model = load_trained(profile, first, cache, on_detail, device=device, trained_on=trained_on)
    names: dict[Path | None, str | None] = {None: None, **dict.fromkeys(adapters[:1], "default")}
    for number, folder in enumerate(adapters[1:], start=1):
        names[folder] = f"side_{number}"  # not by the folder: several of one name would be loaded over each other
        add_adapter(model, folder, f"side_{number}")
    return [Speaker(model, names[folder]) for folder in folders]


def answer_chat(
    on_detail: OnDetail, chosen: dict[str, Any], profile: str, conversations: Sequence[list[dict[str, str]]],
    sampling: dict[str, Any],
) -> list[ChatAnswer]:  # fmt: skip
    """The answer of each side to its conversation, a token of each by turns; `on_detail` gets the texts so far (JSON).

    Ends early where `stop_flag` is set. What `open_chat` has loaded is loaded again where this is another process by
    now: one without requests ends after five minutes.

    Raises:
        FtuiError: see `open_chat`; the template takes no such conversation, or memory runs out.
    """
    open_chat(on_detail, chosen, profile)
    max_new_tokens = sampling.pop("max_new_tokens")
    keys = Sampling(**sampling)
    answers = [
        speaker.answer(messages, keys, max_new_tokens)
        for speaker, messages in zip(_speakers, conversations, strict=True)
    ]
    while not stop_flag.is_set() and (unfinished := [answer for answer in answers if not answer.has_ended]):
        for answer in unfinished:
            answer.add_token()
        on_detail(msgspec.json.encode([answer.text for answer in answers]).decode())
    return [answer.facts() for answer in answers]
