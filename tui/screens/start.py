"""What can be started."""

from textual.screen import Screen


class StartScreen(Screen[None]):
    """To come."""

    def __init__(self, chosen: str = "") -> None:
        super().__init__()
