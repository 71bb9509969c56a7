"""Where the chart draws the ends of epochs."""

import pytest

from ftui.tui.drawing.charts.loss_columns import View
from ftui.tui.drawing.charts.loss_marks import epochs_shown


@pytest.mark.parametrize(
    ("shift", "first", "steps"),
    [
        (0.0, 0, {1: 100, 2: 200, 3: 300, 4: 400}),
        (2.5, 50, {3: 50, 4: 150, 5: 250, 6: 350, 7: 450}),  # a fork at step 50, of a parent that had seen 3 epochs
        (-0.5, 100, {1: 150, 2: 250, 3: 350, 4: 450, 5: 550}),
    ],
)
def test_a_forks_epochs_end_where_its_counter_is_whole(shift: float, first: int, steps: dict[int, int]) -> None:
    view = View(first, first + 480, 161)
    columns = {number: view.column(step) for number, step in steps.items()}
    assert {number: column for column, number in epochs_shown(100, view, 80, shift)} == columns
