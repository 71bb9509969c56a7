"""The form editor: every key of the profile is reached, changed and changed back by keys alone; files are safe."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.widgets import Input

from ftui.errors import ModelError, ProfileError
from ftui.estimate.api import Known, estimate
from ftui.estimate.result import Memory
from ftui.hardware.devices import Card, find_card
from ftui.profile import recent
from ftui.profile.checks.messages import all_keys
from ftui.profile.layers import resolve
from ftui.profile.origins import Key
from ftui.profile.presets import find_profile, shipped_presets
from ftui.profile.schema import Profile
from ftui.profile.toml_edit.document import parse_toml_value
from ftui.runs.run_folder import Run, runs_root
from ftui.text import shown
from ftui.tui import app
from ftui.tui.app import FtuiApp
from ftui.tui.drawing.editor.form_estimate import breakdown, estimate_line
from ftui.tui.form.estimates import MachineCards, card_choices, estimate_on
from ftui.tui.form.form_fields import Field, all_fields, field_at
from ftui.tui.form.profile_form import ProfileForm
from ftui.tui.form.text_values import format_value, parse_value
from ftui.tui.render.canvas import Canvas
from ftui.tui.render.glyphs import UNICODE
from ftui.tui.render.spans import Frame
from ftui.tui.screens.dialogs import ConfirmScreen, MessageScreen, PromptScreen
from ftui.tui.screens.diff import DiffScreen
from ftui.tui.screens.editor import estimate_panel
from ftui.tui.screens.editor.editor_screen import EditorScreen
from ftui.tui.screens.editor.key_info import InfoScreen
from ftui.tui.screens.editor.profile_file import LeaveScreen
from ftui.tui.screens.monitor import MonitorScreen
from ftui.tui.screens.pick import PickScreen
from ftui.tui.screens.resolved import ResolvedScreen
from ftui.tui.screens.start import StartScreen
from tests.support.shown_app import ShownApp, shown_app

PROFILE = """\
# mine

[run]
stage = "sft"

[model]
name_or_path = "Qwen/Qwen3-0.6B"   # the base

[data]
train = "rows.jsonl"
eval_fraction = 0.1

[train]
learning_rate = 2e-4               # usual
num_train_epochs = 2
"""
TURNS = 60  # of the event loop: a key goes from the program to the screen, the line of input and back to the screen
EVALUATED = PROFILE.replace("eval_fraction = 0.1", 'eval = "rows.jsonl"')  # of every kind of source there is one
WRONG = PROFILE.replace("eval_fraction", "eval_fractoin").replace("2e-4", '"2e-4"') + "\n[trian]\nseed = 3\n"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a profile and rows in it, an RTX 4090 in the machine, and no model on the disk."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.chdir(home / "work")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setattr(estimate_panel, "detect_cards", machine)
    Path("mine.toml").write_text(PROFILE)
    Path("rows.jsonl").write_text('{"messages": [{"role": "user", "content": "[/]"}]}\n')
    return home / "work"


def machine() -> MachineCards:
    return MachineCards(
        find_card("rtx4090"), find_card("cpu"), "rtx4090", "NVIDIA GeForce RTX 4090 has a tier of its own"
    )


class Person:
    """Somebody at the editor."""

    def __init__(self, shown: ShownApp) -> None:
        self.shown, self.app = shown, shown.app

    async def press(self, *keys: str) -> None:
        """Keys as fast as they come: a pilot's own wait a twentieth of a second after each."""
        for key in keys:
            await self._send(events.Key(key, key if len(key) == 1 else None))

    async def _send(self, event: events.Event) -> None:
        self.app.post_message(event)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def fill(self, text: str) -> None:
        """In place of what stands in the line of input; pasted, which is one event."""
        await self.press("ctrl+u")
        await self._send(events.Paste(text))

    async def settle(self) -> None:
        await self.shown.pilot.pause()
        await self.app.workers.wait_for_complete()
        await self.shown.pilot.pause()

    @property
    def screen(self) -> Any:
        return self.app.screen

    @property
    def form(self) -> ProfileForm:
        assert isinstance(self.screen, EditorScreen)
        return self.screen.form

    def shows(self, kind: type[object]) -> bool:
        """Whether such a screen is on top."""
        return isinstance(self.app.screen, kind)

    @property
    def key(self) -> str:
        """The key under the cursor."""
        row = self.form.row
        return row.name if row is not None else ""

    @property
    def text(self) -> str:
        return self.form.draft.text

    async def find(self, words: str) -> None:
        await self.press("slash", *words, "enter")

    def words(self, name: str = "") -> str:
        """All that is on the screen, or on one of its canvases, one blank between two words."""
        if not name:
            return " ".join(self.shown.text().split())
        canvas = self.screen.query_one(f"#{name}", Canvas)
        return " ".join(" ".join(canvas.render_line(y).text for y in range(canvas.size.height)).split())


@asynccontextmanager
async def editor(text: str | None = None, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Person]:
    if text is not None:
        Path("mine.toml").write_bytes(text.encode())
    async with shown_app(size=size) as shown:
        shown.app.push_screen(EditorScreen(ProfileForm.load(Path("mine.toml"))))
        person = Person(shown)
        await person.settle()
        yield person


def person(script: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(script())  # type: ignore[arg-type]


# -- every key


TYPED = {
    "special_tokens": '["a", "b", "c"]', "init_lora_weights": "gaussian", "chat_template": "qwen", "vocab_size": "512",
    "label_smoothing": "0.2", "min_lr": "1e-5", "lr_end": "1e-5", "columns": 'output = "b"',
    "roles": 'bot = "assistant"', "to": "hub:a/b", "reward_funcs": "maths", "clipping": "2",
    "then_stop_seconds": "30", "urls": "env:NTFY_URL", "length_without_reward": "2",
}  # fmt: skip


def something_else(field: Field) -> str:
    """What somebody might type there."""
    usual = {"number": "0.5", "whole": "8", "list": "a", "texts": "q_proj", "table": "q_proj = 8"}.get(field.kind, "x")
    return TYPED.get(field.key[-1], "tensorboard" if field.choices else usual)


def test_every_key_is_reached_changed_and_changed_back_by_keys_alone() -> None:
    """Down through the whole form, tables opened on the way."""
    reached: set[Key] = set()
    unchanged: list[Key] = []

    async def change(at: Person, field: Field) -> None:
        if field.kind in ("switch", "choice"):
            await at.press("right")
            return
        await at.press("enter")
        if at.shows(PickScreen) and field.choices:  # things to put into a list, one after the other
            await at.press("enter")
            await at.press("escape")
            await at.settle()
            return
        if at.shows(PickScreen):
            await at.fill("a/b")
        else:
            await at.fill(something_else(field))
        await at.press("enter")

    async def script() -> None:
        async with editor(EVALUATED) as at:
            for _ in range(400):
                row = at.form.row
                assert row is not None and row.field is not None
                reached.add(row.field.key)
                if row.is_open is False:
                    await at.press("right")
                else:
                    await change(at, row.field)
                    if at.text == EVALUATED:
                        unchanged.append(row.key)
                    await at.press("escape") if at.screen.entry.mode else None
                    await at.press("u")
                    assert at.text == EVALUATED and at.key == row.name, (row.key, at.key)
                await at.press("down")
                if at.key == row.name:
                    break

    person(script)
    assert unchanged == []
    assert reached >= set(all_keys())


def test_every_key_is_found_by_its_name() -> None:
    """Those inside closed tables too; the cursor stands on the key itself afterwards."""
    form = ProfileForm(Path("mine.toml"), EVALUATED, None)
    for field in all_fields():
        form.filter_rows(field.name)
        assert form.row is not None and field_at(form.row.key) == field, field.name
        form.go_to(form.row.key)
        assert form.row is not None and field_at(form.row.key) == field and form.query is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("lr", "train.learning_rate"), ("lora_rank", "adapter.r"), ("grad clip", "train.max_grad_norm"),
        ("gas", "train.gradient_accumulation_steps"), ("4 bits", "adapter.bnb_4bit_quant_type"),
        ("save limit", "checkpoint.save_total_limit"), ("pdtbs", "train.per_device_train_batch_size"),
        ("max_seq_length", "data.max_length"),
    ],
)  # fmt: skip
def test_keys_are_found_by_what_people_call_them(words: str, found: str) -> None:
    form = ProfileForm.load(Path("mine.toml"))
    form.filter_rows(words)
    assert found in [row.name for row in form.rows][:3]


# -- values


def test_a_value_is_typed_in_its_place() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("learning_rate")
            assert at.key == "train.learning_rate"
            await at.press("enter")
            await at.settle()
            assert at.screen.query_one(Input).value == "2e-4" and at.screen.query_one(Input).region.y == 16
            await at.fill("-5")
            assert "greater than or equal to 0, not -5" in at.words("details") and "1 error" in at.words("title")
            await at.press("enter")
            assert at.screen.entry.mode == "typing" and at.text == PROFILE, "it is not taken"
            await at.fill("3.5e-5")
            await at.press("enter")
            assert "learning_rate = 3.5e-5             # usual" in at.text and "* changed" in at.words("title")
            await at.press("enter", "1", "escape")
            assert "3.5e-5 " in at.text and not at.screen.entry.mode
            await at.press("u")
            assert at.text == PROFILE and "changed" not in at.words("title")
            await at.press("U", "x")
            assert "learning_rate" not in at.text and "2e-4 default" in at.words("body")
            await at.press("x")
            assert "is not in the file" in at.words("keys")

    person(script)


def test_keys_that_come_all_at_once_are_typed_not_done() -> None:
    """`/seed` and enter, and a value: a slow link brings them together; none of them may act on the form."""

    async def script() -> None:
        async with editor() as at:
            for key in ("slash", *"xlqsed", "escape", "slash", *"seed", "enter"):
                at.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await at.settle()
            assert at.text == PROFILE and at.key == "train.seed" and not at.screen.entry.mode
            for key in ("enter", "7", "7"):
                at.app.post_message(events.Key(key, key if len(key) == 1 else None))
            await at.settle()
            assert at.screen.query_one(Input).value == "4277" and at.text == PROFILE

    person(script)


def test_choices_and_switches_turn() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("adapter.method")
            await at.press("right")
            assert 'method = "qlora"' in at.text
            await at.press("left", "left")
            assert 'method = "freeze"' in at.text and "freeze trains what" in at.words("details")
            await at.press("enter")
            assert at.shows(PickScreen) and "lora the default" in at.words("body")
            await at.press(*"full", "enter")
            assert 'method = "full"' in at.text
            await at.find("packing")
            await at.press("space", "enter", "space")
            assert "packing = true" in at.text

    person(script)


def test_one_of_an_exclusive_pair_takes_the_other_out() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("max_steps")
            await at.press("enter")
            await at.fill("30")
            await at.press("down")
            assert "max_steps = 30" in at.text and "num_train_epochs" not in at.text
            assert at.key == "train.num_train_epochs" and "valid" in at.words("title")
            await at.press("u")
            assert at.text == PROFILE

    person(script)


def test_sources_become_tables_when_something_is_said_of_them() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("data.train.weight")
            assert at.key == "data.train.0.weight"
            await at.press("enter")
            await at.fill("2")
            await at.press("enter")
            assert 'train = [{path = "rows.jsonl", weight = 2}]' in at.text and "valid" in at.words("title")
            await at.press("a")
            await at.fill("more.jsonl")
            await at.press("enter")
            assert '{path = "more.jsonl"}' in at.text.replace("{ ", "{").replace(" }", "}")
            assert at.key == "data.train.1.path", "a goes to the new one"
            await at.press("x")
            assert "rows.jsonl" in at.text and "more.jsonl" not in at.text

    person(script)


def test_stages_of_a_curriculum_come_and_go() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("curriculum.fraction")
            assert at.key == "curriculum.0.fraction"
            await at.press("enter")
            await at.fill("0.25")
            await at.press("enter")
            assert "[[curriculum]]\nfraction = 0.25\n" in at.text
            assert "1 error" in at.words("title"), "the profile has num_train_epochs too"
            await at.press("a")
            assert at.key == "curriculum.1.sort_by" and at.text.count("[[curriculum]]") == 2
            await at.press("right")
            assert 'sort_by = "target_share"' in at.text
            await at.press("u", "u")
            assert at.text.count("[[curriculum]]") == 1
            await at.find("curriculum.fraction")
            await at.press("x")
            assert at.text.rstrip() == PROFILE.rstrip()

    person(script)


def test_what_is_wrong_is_shown_where_it_is_and_mended() -> None:
    async def script() -> None:
        async with editor(WRONG, size=(120, 40)) as at:
            assert "3 errors" in at.words("title") and at.key == "trian"
            assert "is it train?" in at.words("body") and "Did you mean [train]?" in at.words("details")
            await at.press("enter")
            assert "[trian]" not in at.text and "seed = 3" in at.text
            await at.press("n")
            assert at.key in ("data.eval_fractoin", "train.learning_rate")
            await at.find("data.eval_fraction")
            await at.press("n") if at.key != "data.eval_fractoin" else None
            while at.key != "data.eval_fractoin":
                await at.press("n")
            await at.press("enter")
            assert "eval_fraction = 0.1" in at.text and at.key == "data.eval_fraction"
            await at.press("s")
            assert "1 error keeps it from starting" in at.words("keys")
            await at.press("n", "enter", "enter")
            assert "valid" in at.words("title") or '"2e-4"' in at.text

    person(script)


def test_a_text_that_is_no_toml_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> None:
        async with editor("[run\n") as at:
            assert "is not TOML" in at.words("body") and "1 error" in at.words("title")
            await at.press("right", "x", "w", "s", "d", "escape", "f", "u")
            monkeypatch.setenv("EDITOR", "no-such-editor")
            await at.press("E")
            assert "Set $EDITOR" in at.words("keys")

    person(script)


@pytest.mark.parametrize("value", ["a\nb", " x ", "", '"q"', "[1]", "\x1b[2J", "a\u202eb", "it's", "none"])
def test_odd_texts_are_typed_as_they_are_shown(value: str) -> None:
    """What stands in the line of input gives the same value again, whatever is in it."""
    field = field_at(("run", "name"))
    assert field is not None and shown(format_value(value)) == format_value(value)
    assert parse_toml_value(parse_value(field, format_value(value))) == value


# -- the text and the estimate


def test_the_text_and_the_memory_have_views_of_their_own() -> None:
    async def script() -> None:
        async with editor() as at:
            assert "~" in at.words("title") and "fits" in at.words("title")
            await at.press("v")
            assert 'name_or_path = "Qwen/Qwen3-0.6B" # the base' in at.words("aside")
            await at.press("down", "down", "b")
            assert "weights" in at.words("aside") and "context" in at.words("aside")
            await at.press("escape")
            assert "learning_rate" not in at.words("aside") or at.screen.form_view.view == "form"
        async with editor(size=(120, 40)) as at:
            assert 'stage = "sft"' in at.words("aside") and "estimate" in at.words("aside")
            await at.press("v")
            assert "estimate" not in at.words("aside")

    person(script)


def test_a_tier_lies_below_the_profile(at_home: Path) -> None:
    async def script() -> None:
        async with editor() as at:
            await at.press("t")
            assert "rtx4090" in at.words("body") and "as it is" in at.words("body")
            await at.press("down", "enter")
            assert at.form.tier is not None and "tier rtx4090" in at.words("title")
            await at.find("gradient_accumulation_steps")
            assert "rtx4090" in at.words("body").partition("gradient_accumulation_steps")[2][:30]
            assert at.text == PROFILE, "a tier writes nothing"
            await at.press("s")
            await at.settle()
            assert at.shows(ResolvedScreen) and at.screen.options.tier == "rtx4090"
            assert "over tier rtx4090" in at.words("body")
            await at.press("enter")
            for _ in range(3000):
                await asyncio.sleep(0.02)
                if at.shows(MonitorScreen):
                    break

    person(script)
    assert "gradient_accumulation_steps = 8" in Run(runs_root() / "mine").profile.read_text()


def test_what_fits_better_is_chosen_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change was simulated before it is shown."""
    text, asked = PROFILE.replace("Qwen3-0.6B", "Qwen3-8B"), list[str]()

    class Helper:
        def ask(self, question: str, *, profile: Profile, card: dict[str, Any], **_: Any) -> Any:
            asked.append(question)
            memory = estimate(profile, Card(**card)).memory
            assert memory is not None
            return asdict(replace(memory, basis="simulated"))

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(estimate_panel, "Helper", Helper)

    async def script() -> None:
        async with editor(text) as at:
            await at.press("f")
            await at.settle()
            assert at.shows(PickScreen) and "GiB" in at.words("body") and "memory simulated" in at.words()
            assert set(asked[:-1]) == {"simulate"} and asked[-1] == "closed"
            await at.press("enter")
            assert at.shows(MessageScreen), "a line at the bottom would be cut, and vanish"
            assert "Changed: " in at.words("question") and "u takes it back." in at.words("question")
            await at.press("enter")
            assert at.text != text and len(at.form.draft.past) == 1
            await at.press("u")
            assert at.text == text

    person(script)


def test_a_closer_look_asks_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Helper:
        def ask(self, question: str, **given: Any) -> Any:
            asked.append(question)
            if question == "count_rows":
                return {"max_steps": 30, "num_train_tokens": 9000, "steps_per_epoch": 15, "longest": 700}
            raise ModelError("The model [/] is not here.", hint="Fetch it.")

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(estimate_panel, "Helper", Helper)

    async def script() -> None:
        async with editor() as at:
            await at.press("c")
            await at.settle()
            assert asked == ["count_rows", "simulate", "closed"] and "The model [/] is not here." in at.words("keys")

    person(script)


def test_a_card_that_cannot_do_it_is_said_to_whatever_its_memory(at_home: Path) -> None:
    Path("q.toml").write_text(PROFILE + '[adapter]\nmethod = "qlora"\n')
    profile = resolve(Path("q.toml")).profile
    large = replace(find_card("mps"), memory=999 << 30)
    told = estimate_on(profile, large, Known())
    line = "".join(text for text, _ in estimate_line(Frame(120, 1, UNICODE), told))
    assert "cannot run there" in line and "fits" not in line
    lines = ["".join(text for text, _ in line) for line in breakdown(Frame(80, 40, UNICODE), told)]
    assert "bitsandbytes has nothing for Apple's GPUs" in " ".join(lines)
    assert "cannot run there as it is" in next(
        one.words for one in card_choices(profile, MachineCards(), "") if one.name == "mps"
    )


@pytest.mark.parametrize(("num_cut", "told"), [(None, "c counts"), (0, "nothing larger"), (5, "max_length")])
def test_what_was_counted_is_known_to_the_list_of_changes(
    num_cut: int | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that is nearly empty: what would use it better is found by the form as by the command."""
    memory = Memory(1 << 28, 1 << 28, 1 << 29, 1 << 29, 1 << 29, {}, "backward", "simulated")

    class Helper:
        def ask(self, question: str, **given: Any) -> Any:
            counts = {"max_steps": 30, "num_train_tokens": 9000, "steps_per_epoch": 15, "longest": 256}
            if question == "count_rows":
                return counts | {"num_cut": num_cut}
            return asdict(replace(memory, allocated=given["profile"].data.max_length))

        def close(self) -> None:
            pass

    monkeypatch.setattr(estimate_panel, "Helper", Helper)
    monkeypatch.setattr(app, "SAID_SECONDS", 0.1)
    alone = "per_device_train_batch_size = 1\ngradient_accumulation_steps = 1"
    text = PROFILE.replace("[train]", f"max_length = 256\n\n[train]\n{alone}")

    async def script() -> None:
        async with editor(text) as at:
            await at.settle()
            if num_cut is not None:
                await at.press("c")
                await at.settle()
            await at.press("f")
            await at.settle()
            if at.shows(PickScreen):
                assert told in at.words("body")
                return
            assert at.shows(MessageScreen), "a line at the bottom would be cut, and vanish"
            await asyncio.sleep(5 * app.SAID_SECONDS)
            assert told in at.words("question")
            await at.press("enter")
            assert at.shows(EditorScreen)

    person(script)


def test_another_editor_gives_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("ed").write_text("#!/bin/sh\necho '# from outside' >> \"$1\"\n")
    Path("ed").chmod(0o755)
    monkeypatch.setenv("VISUAL", str(Path("ed").absolute()))
    monkeypatch.setattr(FtuiApp, "suspend", lambda self: nullcontext())

    async def script() -> None:
        async with editor() as at:
            await at.press("E")
            assert at.text == PROFILE + "# from outside\n"
            await at.press("u")
            assert at.text == PROFILE

    person(script)


# -- lists


def test_models_and_rows_are_chosen_or_typed(at_home: Path) -> None:
    (at_home / "base").symlink_to(find_profile("quickstart").parent.parent / "quickstart" / "base")
    recent.remember("model", "owner/lately")

    async def script() -> None:
        async with editor() as at:
            await at.find("model.name_or_path")
            await at.press("enter")
            assert "./base" in at.words("body") and "owner/lately" in at.words("body")
            assert "751.6 M parameters" in at.words("details") or "parameters" in at.words("details")
            await at.fill("./base")
            assert "llama" in at.words("details") and "layers" in at.words("details")
            await at.press("enter")
            assert 'name_or_path = "./base"' in at.text
            await at.find("data.train")
            await at.press("enter")
            assert "messages: rows with messages" in at.words("details")
            await at.fill("owner/rows")
            assert "fetched from the hub" in at.words("details")
            await at.press("enter")
            assert 'train = "owner/rows"' in at.text

    person(script)
    assert recent.recent_names("model")[0] == str((at_home / "base").resolve())
    assert recent.recent_names("data") == ["owner/rows"]


def test_the_draft_is_compared() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("packing")
            await at.press("space", "d", "enter")
            assert at.shows(DiffScreen) and "1 key differs" in at.words("title")
            assert "data.packing true false" in at.words("body") and "+packing = true" in at.words("body")
            await at.press("q", "d", *"quickstart", "enter")
            assert at.shows(DiffScreen)
            pages = [""]
            while (page := at.words("body")) != pages[-1]:  # how many there are is up to the length of paths
                pages.append(page)
                await at.press("pagedown")
            assert any("train.learning_rate 2e-4 4e-3" in page.replace("0.004", "4e-3") for page in pages)
            await at.press("down", "up", "escape")
            assert at.shows(EditorScreen)
            await at.press("d", *"tier rtx4090", "enter")
            assert "adapter.method lora qlora" in at.words("body") and "beside tier rtx4090" in at.words("title")

    person(script)


# -- files


def test_saving_changes_what_was_changed(at_home: Path) -> None:
    path = at_home / "mine.toml"
    path.chmod(0o664)

    async def script() -> None:
        async with editor(PROFILE.replace("\n", "\r\n")) as at:
            await at.press("w")
            assert "says the same" in at.words("keys")
            await at.find("seed")
            await at.press("enter")
            await at.fill("7")
            await at.press("enter", "w")
            assert path.read_bytes().decode() == PROFILE.replace("\n", "\r\n") + "seed = 7\r\n"
            assert "changed" not in at.words("title") and stat.S_IMODE(path.stat().st_mode) == 0o664
            await at.press("u", "escape")
            assert at.shows(LeaveScreen), "the undo is not saved"
            await at.press("y")
            assert not at.shows(EditorScreen)

    person(script)
    assert recent.recent_names("profile") == [str(path)]


def test_nobody_elses_change_is_lost(at_home: Path) -> None:
    path = at_home / "mine.toml"

    async def script() -> None:
        async with editor() as at:
            await at.find("packing")
            await at.press("space")
            path.write_text("# mine too\n")
            await at.press("w")
            assert at.shows(ConfirmScreen) and "changed by somebody else" in at.words("question")
            await at.press("n")
            assert path.read_text() == "# mine too\n" and "changed" in at.words("title")
            await at.press("W")
            await at.fill("other.toml")
            await at.press("enter")
            assert "packing = true" in Path("other.toml").read_text() and at.form.path.name == "other.toml"
            await at.press("W")
            await at.fill("mine.toml")
            await at.press("enter")
            assert at.shows(ConfirmScreen) and "exists already" in at.words("question")
            await at.press("y")
            assert "packing = true" in path.read_text()
            await at.press("W")
            await at.fill("mine")
            assert "does not end in .toml" in at.words("problem")
            await at.fill("no/mine.toml")
            assert "There is no folder" in at.words("problem")
            await at.press("escape", "escape")
            assert not at.shows(EditorScreen)

    person(script)


def test_saved_elsewhere_it_means_the_same_files(at_home: Path) -> None:
    (at_home / "sub" / "below").mkdir(parents=True)
    form = ProfileForm.load(at_home / "mine.toml")
    form.filter_rows("packing")
    form.cycle(1)
    form.save(at_home / "sub" / "mine.toml")
    assert 'train = "../rows.jsonl"' in (at_home / "sub" / "mine.toml").read_text() and not form.is_changed
    assert form.step_history(-1) and "packing" not in form.draft.text and 'train = "../rows.jsonl"' in form.draft.text
    broken = ProfileForm(at_home / "mine.toml", "[x", None)
    with pytest.raises(ProfileError, match="not TOML"):
        broken.save(at_home / "sub" / "other.toml")


def test_a_shipped_profile_is_edited_as_a_copy(at_home: Path) -> None:
    before = {preset.name: preset.path.read_bytes() for preset in shipped_presets()}

    async def script() -> None:
        async with shown_app() as shown:
            at = Person(shown)
            shown.app.push_screen(StartScreen("quickstart"))
            await at.settle()
            await at.press("e")
            assert at.shows(PromptScreen) and at.screen.query_one(Input).value == "quickstart.toml"
            await at.fill(str(shipped_presets()[0].path))
            assert "stay as they are" in at.words("problem")
            await at.fill("mine.toml")
            assert "There is a file" in at.words("problem")
            await at.fill("voice.toml")
            await at.press("enter")
            await at.settle()
            assert "voice.toml new" in at.words("title") and "valid" in at.words("title")
            assert not Path("voice.toml").exists()
            await at.press("w")
            assert Path("voice.toml").read_text().startswith("# LoRA on a 2.8 M")
            await at.press("s")
            await at.settle()
            assert at.shows(ResolvedScreen) and "Starts a new run voice" in at.words("body")

    person(script)
    assert before == {preset.name: preset.path.read_bytes() for preset in shipped_presets()}


def test_the_list_opens_the_editor_on_ones_own() -> None:
    Path("wrong.toml").write_text(WRONG)

    async def script() -> None:
        async with shown_app() as shown:
            at = Person(shown)
            await at.press("n", "e")
            await at.settle()
            assert at.form.path.name == "mine.toml"
            await at.press("escape", "down", "e")
            await at.settle()
            assert at.form.path.name == "wrong.toml" and at.form.snapshot.profile is None

    person(script)


def test_the_page_of_values_is_searched() -> None:
    async def script() -> None:
        async with shown_app() as shown:
            at = Person(shown)
            shown.app.push_screen(ResolvedScreen(profile=Path("mine.toml")))
            await at.settle()
            await at.press("slash", *"warm up")
            assert "No key has these words" not in at.words("problem")
            await at.fill("nothing like it")
            assert "No key has these words" in at.words("problem")
            await at.fill("warmup")
            await at.press("enter")
            assert "The learning rate rises" in at.words("body") or "Steps over which" in at.words("body")

    person(script)


def test_the_editor_loads_no_training_library() -> None:
    libraries = {"torch", "numpy", "transformers", "datasets"}
    code = f"import ftui.tui.screens.editor.editor_screen, sys; print({libraries} & set(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.stdout == "set()\n", ended.stderr


# -- what a newcomer stumbled over


def test_a_none_is_typed_over_and_left_alone() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("run.name")
            await at.press("enter", *"first", "enter")
            assert 'name = "first"' in at.text
            await at.press("u", "enter", "enter")
            assert at.text == PROFILE and at.key == "run.name"

    person(script)


def test_a_table_in_one_line_is_seen_and_taken_out() -> None:
    async def script() -> None:
        async with editor(PROFILE + "[adapter]\nrank_pattern = {q_proj = 8}\n") as at:
            await at.find("rank_pattern")
            assert "{q_proj = 8}" in at.words("body")
            await at.press("x")
            assert at.text == PROFILE + "[adapter]\n"

    person(script)


def test_a_fault_of_a_table_is_gone_to_and_an_old_verdict_is_none() -> None:
    async def script() -> None:
        async with editor() as at:
            assert "fits" in at.words("title")
            await at.find("model.name_or_path")
            await at.press("x")
            assert "unknown before the error" in at.words("title")
            await at.press("end", "n")
            assert at.key == "model.name_or_path" and "from_scratch" in at.words("details")

    person(script)


def test_what_had_to_go_is_said_and_left_closes_a_table() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.find("max_steps")
            await at.press("enter")
            await at.fill("30")
            await at.press("enter")
            assert "train.num_train_epochs was taken out" in at.words("keys")
            await at.find("from_scratch.vocab_size")
            await at.press("left")
            assert at.key == "model.from_scratch" and ("model", "from_scratch") not in at.form.open_keys

    person(script)


def test_views_take_turns() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.press("b", "b", "v")
            await at.settle()
            assert "num_train_epochs = 2" in at.words() and "activations" not in at.words()
            await at.press("escape", "slash")
            assert "enter go" in at.words("keys")
            await at.press("escape", "i")
            assert at.shows(InfoScreen) and "judged answers" in at.words("body")

    person(script)


def test_the_tier_of_a_profile_is_remembered_and_known_models_are_offered() -> None:
    async def script() -> None:
        async with editor() as at:
            await at.press("t", *"rtx4090", "enter")
        async with editor() as at:
            assert "tier rtx4090" in at.words("title")
            await at.find("model.name_or_path")
            await at.press("enter", *"Qwen3-4B")
            assert "Qwen/Qwen3-4B" in at.words("body")

    person(script)
