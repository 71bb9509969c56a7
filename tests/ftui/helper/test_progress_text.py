import pytest

from ftui.helper.progress_text import BYTES, progress_text, share_of


@pytest.mark.parametrize(
    ("done", "total", "unit"),
    [
        (0, 272, "tensors"), (120, 272, "tensors"), (9_999, 10_000, "rows"), (12_345, 5_000_000, "tokens"),
        (3, 7, ""), (700, 1023, BYTES), (300 << 10, 3 << 30, BYTES), (1 << 40, 3 << 40, BYTES), (17, 7 * 10**9, "B"),
        (4 * 10**9, 7 * 10**9, "tokens"),
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(done: int, total: int, unit: str) -> None:
    """To the digits that are written."""
    text = progress_text("step 3: merging", done, total, unit, 40.0)
    assert text.endswith(", 40 s left")
    assert share_of(text) == pytest.approx(done / total, rel=0.02), text


@pytest.mark.parametrize(("text", "share"), [
    ("loading the model", None), ("", None), ("reading 3 of them", None), ("merging: 0 of 0", None),
    ("more than there was: 5 of 4", 1.0), ("taking steps: 1 of 4", 0.25),
])  # fmt: skip
def test_other_texts(text: str, share: float | None) -> None:
    assert share_of(text) == share
