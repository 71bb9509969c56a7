"""Which weights of a run answer, and who computes: what people name, or what is there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ftui.errors import FtuiError, UsageError
from ftui.estimate.api import setup_for
from ftui.estimate.closed_form import answering_memory
from ftui.estimate.setup import TrainingSetup
from ftui.hardware.detect import Machine, available_memory, find_machine
from ftui.helper.chat_session import BASE, ChatSession, HelperVoice, Side, find_side
from ftui.helper.client import Helper
from ftui.helper.engine_voice import EngineVoice
from ftui.launch.answering_way import Situation, Way, choose_way, dollars_per_hour, price_words, still_words
from ftui.launch.open_run import stored_profile
from ftui.profile.schema import Profile
from ftui.runs.checkpoint_folders import checkpoints_in
from ftui.runs.requests import SamplingKeys
from ftui.runs.run_folder import Run
from ftui.runs.state import phase_word
from ftui.runs.status import Status, is_running, read_status

STILL_SECONDS = 60.0
CONVERSATION = 4096  # tokens of what was said before, that keys and values are counted for
TRAINS = ("training", "generating", "scoring", "evaluating", "saving", "held")


@dataclass(frozen=True)
class Addressee:
    """Whom a person asks: which weights of a run (`None`: the newest), against which, and where or of whom."""

    run: Run
    checkpoint: str | None = None
    against: str | None = None
    device: str | None = None
    through: str | None = None
    most_seconds: float = STILL_SECONDS


@dataclass(frozen=True)
class AnsweringPlan:
    """What will answer: `sides` where another process does, and the way, with its reason."""

    whom: Addressee
    profile: Profile
    way: Way
    sides: tuple[Side, ...]
    per_hour: float | None

    @property
    def reason(self) -> str:
        """Why it is so and what it costs, as a sentence; "" where there is nothing to say."""
        return f"{self.whom.run.name} is training; {self.way.reason}" if self.way.reason else ""

    def open(self, helper: Helper, on_detail: Callable[[str], object]) -> ChatSession:
        """Load what answers.

        Raises:
            FtuiError: it cannot be loaded.
        """
        whom = self.whom
        if self.way.is_engine:
            words = partial(price_words, per_hour=self.per_hour)
            return ChatSession(
                EngineVoice(
                    whom.run, self.profile, against_base=whom.against == BASE, most_seconds=whom.most_seconds,
                    price_words=words,
                )
            )  # fmt: skip
        try:
            voice = HelperVoice(helper, self.profile, self.sides, device=self.way.device, on_detail=on_detail)
        except FtuiError:
            if all(side.folder is None or side.folder.exists() for side in self.sides):
                raise
            sides = _find_sides(whom)  # the run has let the newest go meanwhile: there is a newer one
            voice = HelperVoice(helper, self.profile, sides, device=self.way.device, on_detail=on_detail)
        return ChatSession(voice)


def plan_answering(whom: Addressee, max_new_tokens: int = SamplingKeys().max_new_tokens) -> AnsweringPlan:
    """What answers, chosen by what the run does, what is free and what was asked for.

    Raises:
        UsageError: there is no such checkpoint, its model does not answer, or the engine cannot.
    """
    run, profile = whom.run, stored_profile(whom.run)
    if profile.run.stage == "rm":
        raise UsageError(f"{run.name} has trained a reward model, which scores answers and gives none.")
    status = read_status(run)
    per_hour = dollars_per_hour(status.state, profile)
    situation = _look(whom, profile, status, max_new_tokens, still_words(whom.most_seconds, per_hour))
    way = choose_way(situation, whom.device, whom.through)
    return AnsweringPlan(whom, profile, way, () if way.is_engine else _find_sides(whom), per_hour)


def _find_sides(whom: Addressee) -> tuple[Side, ...]:
    """That checkpoint (or final/, or the newest) and, with `against`, another."""
    sides = [find_side(whom.run, whom.checkpoint)]
    if whom.against is not None:
        sides.append(find_side(whom.run, whom.against))
        if sides[0].folder == sides[1].folder:
            raise UsageError(f"--against {whom.against} is what it would be compared with.")
    return tuple(sides)


def _look(whom: Addressee, profile: Profile, status: Status, max_new_tokens: int, still: str) -> Situation:
    run, state = whom.run, status.state
    refusal = _refusal(whom, profile, status)
    if not is_running(status):
        return Situation(run.name, "", refusal=refusal)
    machine, kind = find_machine(), state.device.partition(":")[0] or "cpu"
    needed = _needed(profile, machine, max_new_tokens, 1 if whom.against is None else 2)
    card = machine.cards[0] if machine.cards and kind == "cuda" else None
    return Situation(
        run.name, kind, whom.checkpoint == BASE or bool(checkpoints_in(run.checkpoints)), needed,
        (None if card is None else card.free, available_memory()), None if card is None else card.card.memory,
        refusal, still,
    )  # fmt: skip


def _refusal(whom: Addressee, profile: Profile, status: Status) -> str:
    """Why the engine cannot answer what is asked; "" where it can."""
    named = next((name for name in (whom.checkpoint, whom.against) if name not in (None, BASE)), None)
    if not is_running(status):
        return "it is not running"
    if status.state.phase not in TRAINS:
        return f"it is {phase_word(status.state.phase)}, and answers once it trains"
    if named is not None or whom.checkpoint == BASE:
        return f"it has the weights of now, and not those of {named or BASE}"
    if whom.against == BASE and not profile.adapter.is_lora:
        return "it trains all weights, and has no base beside them"
    if whom.against == BASE and profile.adapter.name_or_path is not None:
        return "it has trained on the adapter that it began from"
    return ""


def _needed(profile: Profile, machine: Machine, max_new_tokens: int, sides: int) -> tuple[int | None, int | None]:
    """Bytes of a process that answers, on the GPU and on the CPU."""
    tokens, found = max(CONVERSATION, profile.data.max_length) + max_new_tokens, list[int | None]()
    for card in (machine.card, machine.cpu.card):
        setup = setup_for(profile, card)
        found.append(None if isinstance(setup, str) else answering_memory(setup, tokens, sides))
    return found[0], found[1]


def choose_device(
    run: Run, profile: Profile, device: str | None, memory_of: Callable[[TrainingSetup], int]
) -> tuple[str | None, str]:
    """Where long work computes (`None`: as the profile says), and what is to be said of it, as a sentence.

    A run in progress keeps its GPU, and what surely has no room there goes to the CPU. `memory_of`: bytes it takes.
    """
    status = read_status(run)
    if is_running(status):
        trains_on = status.state.device.partition(":")[0]
        if trains_on == (device or "cpu"):
            risk = "both are slower meanwhile" if trains_on == "cpu" else "it may run out of memory"
            return device, f"{run.name} is training there, too: {risk}."
        return device or "cpu", "" if device else f"{run.name} is training and is not disturbed: the CPU computes."
    cards = () if device is not None or profile.hardware.device == "cpu" else find_machine().cards
    if not cards or cards[0].card.kind != "cuda" or cards[0].free is None:
        return device, ""
    setup = setup_for(profile, cards[0].card)
    needed = None if isinstance(setup, str) else memory_of(setup)
    at = Situation(run.name, "", needed=(needed, None), free=(cards[0].free, None), on_card=cards[0].card.memory)
    return (None, "") if needed is None or at.fits_gpu else ("cpu", f"{at.gpu_words}: the CPU computes.")
