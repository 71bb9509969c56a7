"""Who answers for a run: another process on its GPU or on the CPU, or the run itself, whose training then waits."""

from dataclasses import dataclass

from ftui import units
from ftui.errors import UsageError
from ftui.hardware.run_price import device_price
from ftui.profile.schema import Profile
from ftui.runs.state import RunState

KEPT_FREE = 0.05
"""Of the card's memory: a run that has not evaluated yet may become that much larger."""


@dataclass(frozen=True)
class Situation:
    """What the choice depends on. Memory in bytes, `None` where it is not known.

    Attributes:
        trains_on: `cuda`, `mps` or `cpu`; "" where the run is not running.
        has_saved: whether there are weights on the disk for another process to load.
        needed: of another process on the GPU, and on the CPU.
        free: on the GPU, and in RAM. `on_card`: all there is on the GPU.
        refusal: why the engine cannot answer, in words; "" where it can.
        still: how long training may stand still for an answer of the engine, and what that costs.
    """

    name: str
    trains_on: str
    has_saved: bool = True
    needed: tuple[int | None, int | None] = (None, None)
    free: tuple[int | None, int | None] = (None, None)
    on_card: int | None = None
    refusal: str = ""
    still: str = ""

    @property
    def fits_gpu(self) -> bool:
        """Whether another process surely has room beside the run."""
        needed, free, total = self.needed[0], self.free[0], self.on_card
        if needed is None or free is None or not total:
            return False
        return needed + KEPT_FREE * total <= free

    @property
    def fits_cpu(self) -> bool:
        """Whether another process has room in RAM, as far as that is known."""
        needed, free = self.needed[1], self.free[1]
        return needed is None or free is None or needed <= free

    @property
    def gpu_words(self) -> str:
        """What it takes on the GPU, and what is free there."""
        needed, free = self.needed[0], self.free[0]
        if needed is None or free is None:
            return "how much memory it would take on the GPU is not known"
        return f"it takes about {units.size(needed)} on the GPU, where {units.size(free)} are free"


@dataclass(frozen=True)
class Way:
    """The engine, or a process on a device (`None`: the profile's); why, and what that costs."""

    is_engine: bool
    device: str | None
    reason: str


def choose_way(at: Situation, device: str | None = None, through: str | None = None) -> Way:
    """The GPU where another process fits beside the run, else the CPU, else the engine; or what is asked for.

    Raises:
        UsageError: the engine is asked for and cannot answer.
    """
    engine = Way(True, None, f"the run answers with the weights it has now: {at.still}.")
    if through == "engine":
        if device is not None:
            raise UsageError("--device names no other device for the engine: it answers where it trains.")
        if at.refusal:
            raise UsageError(f"{at.name} cannot answer itself: {at.refusal}.")
        return engine
    if not at.trains_on:
        return Way(False, device, "")
    if device is not None:
        return Way(False, device, "" if device != at.trains_on else _shared(at))
    can_engine = not at.refusal and through is None
    if not at.has_saved and can_engine:
        return Way(True, None, f"nothing is saved yet, so {engine.reason}")
    if at.trains_on == "cpu":
        return Way(False, None, _shared(at))
    if at.trains_on == "cuda" and at.fits_gpu:
        return Way(False, "cuda", f"{at.gpu_words}: it answers there, and the run is slower meanwhile.")
    if at.fits_cpu or not can_engine:
        why = f"{at.gpu_words}: " if at.trains_on == "cuda" else ""
        return Way(False, "cpu", f"{why}the CPU answers, and the run is not disturbed.")
    return Way(True, None, f"there is no room for it on the GPU or in RAM, so {engine.reason}")


def _shared(at: Situation) -> str:
    if at.trains_on == "cpu":
        return "the run trains on this CPU, too: both are slower meanwhile."
    if at.trains_on == "cuda":
        room = "" if at.fits_gpu else ": the run may run out of memory"
        return f"{at.gpu_words}{room}; the run is slower meanwhile."
    return "the run trains there, too: both are slower meanwhile."


def dollars_per_hour(state: RunState, profile: Profile) -> float | None:
    """Of all cards that the run trains on; `None` where it is not known.

    Raises:
        ProfileError: the user's table of prices is wrong.
    """
    price = device_price(state.device, profile.hardware.num_processes, profile.hardware.price_per_hour)
    return None if price is None else price.dollars_per_hour


def price_words(seconds: float, per_hour: float | None) -> str:
    """`3.2 s`, with what that costs where it is known: `3.2 s ($0.0027)`."""
    time = units.duration(seconds)
    return time if per_hour is None else f"{time} (${seconds * per_hour / 3600:.2g})"


def still_words(most_seconds: float, per_hour: float | None) -> str:
    """How long training may stand still for an answer."""
    return f"training stands still for at most {price_words(most_seconds, per_hour)} an answer"
