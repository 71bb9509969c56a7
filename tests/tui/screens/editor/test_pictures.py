"""The editor as it is drawn, compared with its pictures (tests/tui/pictures), with an estimate that never changes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftui.estimate.result import Duration, Estimate, Memory
from ftui.hardware.devices import Card, find_card
from ftui.tui.drawing.editor.form import details, form_lines, scroll_to
from ftui.tui.drawing.editor.form_estimate import CardEstimate, breakdown, estimate_line
from ftui.tui.drawing.editor.form_pick import Choice
from ftui.tui.drawing.editor.form_toml import toml_lines
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.render.glyphs import ASCII, UNICODE
from ftui.tui.render.spans import Frame, width_of
from ftui.tui.screens.editor import estimate_panel, value_editor
from tests.support.shown_app import picture, shown_app
from tests.tui.screens.editor.test_editor import PROFILE, WRONG, machine

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
GiB = 1 << 30
MEMORY = Memory(
    allocated=15 * GiB, reserved=16 * GiB, process=int(17.2 * GiB), low=int(16.3 * GiB), high=int(18.6 * GiB),
    breakdown={
        "weights": 6 * GiB, "quantisation": GiB // 5, "adapters": GiB // 3, "gradients": GiB // 3,
        "optimizer": GiB // 2, "activations": 7 * GiB, "logits": GiB, "workspace": 8 << 20, "fragmentation": GiB,
        "context": GiB // 2,
    },
    phase="backward", basis="closed form", unvalidated=("the optimizer paged_adamw_8bit",),
)  # fmt: skip
DURATION = Duration(1200, 2810.0, 5.5, 6600.0, 1.2, 0.25, "closed form")
ESTIMATE = Estimate(
    "rtx4090", 1, "fits", MEMORY, DURATION, 3 * GiB, 2 * GiB, 8_190_000_000, 43_650_000, ("The rows were not read.",)
)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.chdir(home / "work")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setattr(estimate_panel, "detect_cards", machine)
    monkeypatch.setattr(estimate_panel, "estimate_on", fixed_estimate)
    monkeypatch.setattr(value_editor, "model_choices", lambda folder, current: [])
    Path("mine.toml").write_text(PROFILE)
    Path("rows.jsonl").write_text('{"messages": []}\n')
    return home / "work"


def fixed_estimate(profile: Any, card: Card | None, known: Any) -> CardEstimate:
    return CardEstimate(card, ESTIMATE if profile is not None else None, "" if profile else "the profile has faults")


def drawn(*keys: str, size: str, **options: Any) -> str:
    async def main() -> str:
        async with shown_app(size=SIZES[size], clock=lambda: 0.0, **options) as shown:
            await shown.press("n", "e")
            await shown.app.workers.wait_for_complete()
            await shown.press(*keys)
            await shown.app.workers.wait_for_complete()
            await shown.pilot.pause()
            return picture(shown.app)

    return asyncio.run(main())


STATES = {
    "form": (), "typing": ("slash", *"lr", "enter", "enter", "ctrl+u", "minus", "5"), "finding": ("slash", *"gas"),
    "changed": ("slash", *"packing", "enter", "space"),
}  # fmt: skip


@pytest.mark.parametrize("size", ["60x20", "80x24", "120x40"])
@pytest.mark.parametrize("state", STATES)
def test_the_form(state: str, size: str, same_picture: Callable[[str, str], None]) -> None:
    same_picture(f"editor-{state}-{size}", drawn(*STATES[state], size=size))


VIEWS = {"text": ("v",), "memory": ("b",), "tiers": ("t",), "diff": ("x", "d", "enter")}


@pytest.mark.parametrize("view", VIEWS)
def test_other_views(view: str, same_picture: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [
        Choice("no tier", "24.0 GiB, this machine", "", is_current=True),
        Choice("rtx4090", "24.0 GiB, NVIDIA GeForce RTX 4090; fits as it is", "rtx4090", ("QLoRA r16.",), tone="good"),
        Choice("a40", "45.0 GiB, NVIDIA A40; fits as it is", "a40"),
    ]
    monkeypatch.setattr(estimate_panel, "card_choices", lambda *arguments: choices)
    same_picture(f"editor-{view}-80x24", drawn(*VIEWS[view], size="80x24"))


@pytest.mark.parametrize("size", ["80x24", "120x40"])
def test_faults(size: str, at_home: Path, same_picture: Callable[[str, str], None]) -> None:
    (at_home / "mine.toml").write_text(WRONG)
    same_picture(f"editor-faults-{size}", drawn(size=size))


def test_in_ascii_and_light(same_picture: Callable[[str, str], None]) -> None:
    same_picture("editor-ascii-120x40", drawn(size="120x40", glyphs=ASCII, theme="light"))


@pytest.mark.parametrize("verdict", ["fits", "likely", "tight", "no", "unknown"])
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_estimate_fits_its_line(verdict: Any, width: int) -> None:
    """And says how it stands in a word, whatever the colours."""
    card = find_card("rtx4090")
    known = Estimate(**{**vars(ESTIMATE), "verdict": verdict, "memory": None if verdict == "unknown" else MEMORY})
    for on_card in (CardEstimate(card, known), CardEstimate(card, None, "why " * 50), CardEstimate(None, None)):
        line = estimate_line(Frame(width, 1, UNICODE), on_card)
        if width >= 80 and on_card.estimate is not None:
            assert width_of(line) <= width
            text = "".join(part for part, _ in line)
            assert {"no": "does not fit"}.get(verdict, verdict) in text and ("~17.2 GiB" in text) == (
                verdict != "unknown"
            )
        assert len(breakdown(Frame(width, 12, ASCII), on_card)) <= 12


@pytest.mark.parametrize(("rows", "mark"), [
    ("", ""), ("rows not read: 2048 tokens each for the memory, the files' size for the time", "rows not read"),
    ("rows counted without the tokenizer, 4.2 bytes a token (3.2 to 5.2)", "rows by bytes"),
])  # fmt: skip
def test_the_line_says_how_its_rows_are_known(rows: str, mark: str) -> None:
    """Where there is room; else the list of all facts does."""
    on_card = CardEstimate(find_card("rtx4090"), Estimate(**{**vars(ESTIMATE), "rows": rows}))
    text = "".join(part for part, _ in estimate_line(Frame(120, 1, UNICODE), on_card))
    assert text.endswith(mark) and ("rows" in text) == bool(mark)
    facts = " ".join("".join(part for part, _ in line) for line in breakdown(Frame(100, 40, UNICODE), on_card))
    assert ("tokens each" in facts or "bytes a token" in facts) == bool(mark)


@pytest.mark.parametrize(
    ("size", "words"), [(0.3, "0.30"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (526, "526")]
)
def test_a_part_of_any_size_stands_apart_from_its_name(size: float, words: str) -> None:
    memory = Memory(**{**vars(MEMORY), "breakdown": {"fragmentation": int(size * GiB)}})
    on_card = CardEstimate(find_card("h100"), Estimate(**{**vars(ESTIMATE), "memory": memory}))
    lines = ["".join(part for part, _ in line) for line in breakdown(Frame(48, 40, UNICODE), on_card)]
    assert any(line.split()[:3] == ["fragmentation", words, "GiB"] for line in lines)


def test_any_text_is_drawn() -> None:
    """What is no TOML too: colours never fail, and no character is lost."""
    text = 'a = """x\n[b] # "\n""" # c\nd=[1, 2.5e-3, true, "]#", \'x\']\n= = =\n\x1b[2J\n"unclosed\n[x'
    lines = toml_lines(Frame(200, 50, UNICODE), text, at=2, wrong={1}, top=0)
    assert ["".join(part for part, _ in line).rstrip()[4:] for line in lines] == [
        line.rstrip() for line in text.split("\n")
    ] or len(lines) == text.count("\n") + 1
    assert scroll_to(49, 0, 10, 60) > 40 and scroll_to(0, 30, 10, 60) == 0 and scroll_to(None, 99, 10, 60) == 50


def test_nothing_to_show_is_no_fault() -> None:
    form = ProfileForm.load(Path("mine.toml"))
    form.filter_rows("no such key")
    assert form.rows == [] and len(form_lines(Frame(80, 10, UNICODE), form)) == 2
    assert len(details(Frame(80, 5, UNICODE), None)) == 1
