"""Text as it goes into a log: a progress bar leaves its last state, and no line is longer than a person reads."""

LONGEST_LINE = 20_000  # characters


class LogLines:
    """Takes text in pieces and gives back what to write; however it is cut into pieces, that is the same in all.

    A carriage return ends a line for a log. Of what a line was drawn over with after the first one, the last state is
    kept, and given back once the line ends. Of a longer line than `LONGEST_LINE` the rest is counted.
    """

    def __init__(self) -> None:
        self._column = 0
        """Characters that the line has by now, those that were left out among them."""
        self._is_redrawn = False
        self._state = self._last_state = ""
        """What came after the last carriage return, and what was there before it."""

    def take(self, text: str) -> str:
        """What to write for the next piece."""
        *lines, rest = text.split("\n")
        return "".join(self._add(line) + self._draw() + self._end() for line in lines) + self._add(rest)

    def finish(self) -> str:
        """What is left to write: nothing more comes."""
        return self._draw()

    def _add(self, text: str) -> str:
        written = ""
        if not self._is_redrawn:
            text, carriage_return, over = text.partition("\r")
            written, text, self._is_redrawn = self._cut(text), over, bool(carriage_return)
        *states, newest = (self._state + text).split("\r")
        self._last_state = next((state for state in reversed(states) if state), self._last_state)
        self._state = newest[:LONGEST_LINE]
        return written

    def _draw(self) -> str:
        state = self._state or self._last_state
        self._is_redrawn, self._state, self._last_state = False, "", ""
        before = self._end() if state and self._column else ""
        return before + self._cut(state)

    def _end(self) -> str:
        over, self._column = self._column - LONGEST_LINE, 0
        return f" ... {over:,} more characters\n" if over > 0 else "\n"

    def _cut(self, text: str) -> str:
        room = max(0, LONGEST_LINE - self._column)
        self._column += len(text)
        return text[:room]
