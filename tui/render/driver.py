"""What the terminal is told before it gets its own screen back."""

from textual.driver import Driver

CLEAR = "\x1b[H\x1b[2J"


def clearing(driver: type[Driver]) -> type[Driver]:
    """The driver, but one that leaves nothing in the other screen.

    tmux 3.3 mixes full lines of it into the first screen where the window was made larger in the meantime.
    """

    class Clearing(driver):  # type: ignore[misc, valid-type]
        def stop_application_mode(self) -> None:
            self.write(CLEAR)
            super().stop_application_mode()

    return Clearing
