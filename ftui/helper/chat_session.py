"""A conversation with what a run has trained, and the helper process that has it in memory."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_facts import ChatAnswer, ChatSides, ModelFacts
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import Manifest, checkpoints_in, fault, read_manifest, step_of
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run

if TYPE_CHECKING:  # an engine finds its checkpoints by this module, and asks no helper
    from ftui.helper.client import Helper

BASE = "base"
Messages = list[dict[str, str]]
OnTexts = Callable[[list[str]], object]


class Side(msgspec.Struct, frozen=True):
    """What answers: weights of a run, or the base (no folder). `seal` is the hash of the manifest of its files.

    `trained_on` is the run's fingerprint of its base; "" where none is known.
    """

    title: str
    folder: Path | None = None
    seal: str = ""
    trained_on: str = ""

    @property
    def folder_name(self) -> str:
        """What folders of what was made of it begin with: that of a checkpoint set aside has a `/` in its title."""
        return self.title.replace("/", "-")


class Voice(Protocol):
    """Something that answers for all sides of a conversation. `cost`: of the last answer in words, where it has one."""

    sides: tuple[Side, ...]
    facts: ModelFacts
    cost: str

    def answer(self, conversations: list[Messages], sampling: SamplingKeys, on_texts: OnTexts) -> list[ChatAnswer]:
        """The answer of each side; `on_texts` is called in this thread with what each has said so far."""

    def stop(self) -> None:
        """End the answers in progress within a token; any thread may call it."""


class HelperVoice:
    """A helper process that has the sides in memory.

    Raises:
        FtuiError: one cannot be loaded.
    """

    cost = ""

    def __init__(
        self,
        helper: "Helper",
        profile: Profile,
        sides: Sequence[Side],
        *,
        device: str | None = None,
        on_detail: Callable[[str], object] | None = None,
    ) -> None:
        self._helper, self._profile, self.sides = helper, profile, tuple(sides)
        folders = [None if side.folder is None else str(side.folder) for side in sides]
        self._chosen = msgspec.to_builtins(ChatSides(folders, device, sides[0].trained_on))
        facts = helper.ask("open_chat", on_detail=on_detail, profile=profile, chosen=self._chosen)
        self.facts = msgspec.convert(facts, ModelFacts)

    def answer(self, conversations: list[Messages], sampling: SamplingKeys, on_texts: OnTexts) -> list[ChatAnswer]:
        def tell(detail: str) -> None:
            if detail.startswith("["):  # else it says that the model is loaded again
                on_texts(msgspec.json.decode(detail, type=list[str]))

        answers = self._helper.ask(
            "answer_chat", on_detail=tell, profile=self._profile, chosen=self._chosen,
            conversations=conversations, sampling=msgspec.to_builtins(sampling),
        )  # fmt: skip
        return msgspec.convert(answers, list[ChatAnswer])

    def stop(self) -> None:
        self._helper.stop()


class ChatSession:
    """Sides that answer the same prompts, each with what itself has said before."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.conversations: list[Messages] = [[] for _ in voice.sides]

    @property
    def sides(self) -> tuple[Side, ...]:
        """What answers; of a run in training the titles change with its steps."""
        return self.voice.sides

    @property
    def facts(self) -> ModelFacts:
        """Where the model answers."""
        return self.voice.facts

    def restart(self, system_prompt: str | None = None) -> None:
        """Begin again."""
        start = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self.conversations = [list(start) for _ in self.sides]

    def say(self, text: str, sampling: SamplingKeys, on_texts: OnTexts) -> list[ChatAnswer]:
        """What each side answers; `on_texts` is called in this thread with what each has said so far.

        Raises:
            FtuiError: the template does not take this turn, which is then forgotten.
        """
        conversations = [[*messages, {"role": "user", "content": text}] for messages in self.conversations]
        answers = self.voice.answer(conversations, sampling, on_texts)
        for messages, answer in zip(conversations, answers, strict=True):
            messages.append({"role": "assistant", "content": answer.text})
        self.conversations = conversations
        return answers

    def stop(self) -> None:
        """End the answers in progress within a token; any thread may call it."""
        self.voice.stop()


def find_side(run: Run, name: str | None) -> Side:
    """The weights that a person named: `final`, `checkpoint-N`, N or `base`; without a name final/, else the newest.

    What was set aside is named with its folder: `superseded/checkpoint-120-0123abcd`.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    present = {"final": run.final} if run.final.is_dir() else {}
    present |= {checkpoint.path.name: checkpoint.path for checkpoint in checkpoints_in(run.checkpoints)}
    if name == BASE:
        return Side(BASE, trained_on=_fingerprint_of_base(present.values()))
    aside = {
        f"{root.name}/{path.name}": path
        for root in (run.superseded, run.quarantine) if root.is_dir()
        for path in root.iterdir() if path.is_dir() and not path.is_symlink()
    }  # fmt: skip
    if name in aside:
        return _checked(run, str(name), aside[str(name)], present)
    if not present:
        raise UsageError(f"{run.name} has saved nothing yet that could answer.", hint="Ask `base`, or wait.")
    wanted = next(iter(present)) if name is None else name if name in present else f"checkpoint-{step_of(name)}"
    folder = present.get(wanted)
    if folder is None:
        raise UsageError(f"{run.name} has no {wanted}.", hint=f"There are: {', '.join([*present, BASE])}.")
    return _checked(run, wanted, folder, present)


def _checked(run: Run, wanted: str, folder: Path, present: Collection[str]) -> Side:
    if problem := fault(folder):
        hint = f"There are: {', '.join([*present, BASE])}."
        raise UsageError(f"{wanted} of {run.name} is damaged: {problem}.", hint=hint)
    try:
        manifest = read_manifest(folder)
        return Side(wanted, folder, manifest.seal, _base_of(manifest))
    except OSError as error:  # rotation has just let it go
        raise UsageError(f"{wanted} of {run.name} is gone.") from error


def _fingerprint_of_base(folders: Iterable[Path]) -> str:
    """As the first of the checkpoints says it that is still whole."""
    for folder in folders:
        if not fault(folder):
            with suppress(OSError):  # rotation has just let it go
                return _base_of(read_manifest(folder))
    return ""


def _base_of(manifest: Manifest) -> str:
    return manifest.fingerprints.get("base_model", "")
