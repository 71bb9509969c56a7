"""The checkpoints of a run."""

from textual.screen import Screen

from ftui.run import Run


class CheckpointsScreen(Screen[None]):
    """To come."""

    def __init__(self, run: Run) -> None:
        super().__init__()
