"""Which weights of a run answer, and where: what people name, or what is there."""

from ftui.errors import UsageError
from ftui.helper.chat_session import Side, find_side
from ftui.launch.open_run import stored_profile
from ftui.profile.schema import Profile
from ftui.runs.run_folder import Run
from ftui.runs.status import is_running, read_status


def find_sides(run: Run, checkpoint: str | None, against: str | None) -> tuple[Profile, list[Side]]:
    """The run's profile, and what answers: that checkpoint (or final/, or the newest) and, with `against`, another.

    Raises:
        UsageError: there is no such checkpoint, or its model does not answer.
    """
    profile = stored_profile(run)
    if profile.run.stage == "rm":
        raise UsageError(f"{run.name} has trained a reward model, which scores answers and gives none.")
    sides = [find_side(run, checkpoint)]
    if against is not None:
        sides.append(find_side(run, against))
        if sides[0].folder == sides[1].folder:
            raise UsageError(f"--against {against} is what it would be compared with.")
    return profile, sides


def choose_device(run: Run, profile: Profile, device: str | None) -> tuple[str | None, str]:
    """Where to compute (`None`: as the profile says), and why it is not there; a run in progress keeps its GPU."""
    if device is not None or profile.hardware.device == "cpu" or not is_running(read_status(run)):
        return device, ""
    return "cpu", f"{run.name} is training and is not disturbed: the CPU answers."
