"""A conversation with what a run has trained, through a helper process that has it in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ftui.errors import UsageError
from ftui.helper.chat_facts import ChatAnswer, ChatSides, ModelFacts, SamplingKeys
from ftui.helper.client import Helper
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import checkpoints_in, fault, read_manifest, step_of
from ftui.runs.run_folder import Run

BASE = "base"
Messages = list[dict[str, str]]


class Side(msgspec.Struct, frozen=True):
    """What answers: weights of a run, or the base (no folder). `seal` is the hash of the manifest of its files."""

    title: str
    folder: Path | None = None
    seal: str = ""


class ChatSession:
    """Sides that answer the same prompts, each with what itself has said before.

    Raises:
        FtuiError: one cannot be loaded.
    """

    def __init__(
        self,
        helper: Helper,
        profile: Profile,
        sides: Sequence[Side],
        *,
        device: str | None = None,
        on_detail: Callable[[str], object] | None = None,
    ) -> None:
        self._helper, self._profile, self.sides = helper, profile, tuple(sides)
        folders = [None if side.folder is None else str(side.folder) for side in sides]
        self._chosen = msgspec.to_builtins(ChatSides(folders, device))
        facts = helper.ask("open_chat", on_detail=on_detail, profile=profile, chosen=self._chosen)
        self.facts = msgspec.convert(facts, ModelFacts)
        self.conversations: list[Messages] = [[] for _ in sides]

    def restart(self, system_prompt: str | None = None) -> None:
        """Begin again."""
        start = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self.conversations = [list(start) for _ in self.sides]

    def say(self, text: str, sampling: SamplingKeys, on_texts: Callable[[list[str]], object]) -> list[ChatAnswer]:
        """What each side answers; `on_texts` is called in this thread with what each has said so far.

        Raises:
            FtuiError: the template does not take this turn, which is then forgotten.
        """
        conversations = [[*messages, {"role": "user", "content": text}] for messages in self.conversations]

        def tell(detail: str) -> None:
            if detail.startswith("["):  # else it says that the model is loaded again
                on_texts(msgspec.json.decode(detail, type=list[str]))

        answers = msgspec.convert(
            self._helper.ask(
                "answer_chat", on_detail=tell, profile=self._profile, chosen=self._chosen,
                conversations=conversations, sampling=msgspec.to_builtins(sampling),
            ),
            list[ChatAnswer],
        )  # fmt: skip
        for messages, answer in zip(conversations, answers, strict=True):
            messages.append({"role": "assistant", "content": answer.text})
        self.conversations = conversations
        return answers

    def stop(self) -> None:
        """End the answers in progress within a token; any thread may call it."""
        self._helper.stop()


def find_side(run: Run, name: str | None) -> Side:
    """The weights that a person named: `final`, `checkpoint-N`, N or `base`; without a name final/, else the newest.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    if name == BASE:
        return Side(BASE)
    present = {"final": run.final} if run.final.is_dir() else {}
    present |= {checkpoint.path.name: checkpoint.path for checkpoint in checkpoints_in(run.checkpoints)}
    if not present:
        raise UsageError(f"{run.name} has saved nothing yet that could answer.", hint="Ask `base`, or wait.")
    wanted = next(iter(present)) if name is None else name if name in present else f"checkpoint-{step_of(name)}"
    folder = present.get(wanted)
    if folder is None:
        raise UsageError(f"{run.name} has no {wanted}.", hint=f"There are: {', '.join([*present, BASE])}.")
    if problem := fault(folder):
        raise UsageError(f"{wanted} of {run.name} is damaged: {problem}.", hint=f"There are: {', '.join(present)}.")
    try:
        return Side(wanted, folder, read_manifest(folder).seal)
    except OSError as error:  # rotation has just let it go
        raise UsageError(f"{wanted} of {run.name} is gone.") from error
