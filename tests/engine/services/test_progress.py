from collections.abc import Sequence

import pytest

from ftui.engine.services.progress import Progress
from ftui.helper.progress_text import BYTES


@pytest.mark.parametrize(
    ("what", "total", "unit", "advances", "last"),
    [
        ("merging", 272, "tensors", [(40.0, 136)], "merging: 136 of 272 tensors, 40 s left"),
        ("merging", 272, "tensors", [], "merging: 0 of 272 tensors"),
        ("merging", 2, "tensors", [(1.0, 1), (1.0, 1)], "merging: 2 of 2 tensors"),
        ("rows", 8, "", [(0.0, 0)], "rows: 0 of 8"),
        ("rows", 12_345, "", [(1.0, 12_000)], "rows: 12.0 k of 12.3 k, 0.0 s left"),
        ("copying", 3 << 30, BYTES, [(60.0, 1 << 30)], "copying: 1.0 GiB of 3.0 GiB, 2m 00s left"),
        ("slow, then fast", 100, "", [(100.0, 10), (11.0, 10), (11.0, 40)], "slow, then fast: 60 of 100, 11 s left"),
    ],
    ids=["half", "nothing yet", "all", "no step", "large", "bytes", "the pace of the last ten seconds"],
)
def test_what_is_done_and_what_time_is_left(
    what: str, total: int, unit: str, advances: Sequence[tuple[float, int]], last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, texts = [50.0], list[str]()
    monkeypatch.setattr("ftui.engine.system.pace.time.monotonic", lambda: now[0])
    progress = Progress(texts.append, what, total, unit)
    for seconds, n in advances:
        now[0] += seconds
        progress.advance(n)
    assert (texts[-1], len(texts)) == (last, len(advances) + 1)
