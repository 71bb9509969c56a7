"""A profile being edited: only what is changed changes, every change can be taken back, no file is lost."""

import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftui.errors import DiskError, ProfileError
from ftui.profile import recent
from ftui.profile.checks.messages import all_keys
from ftui.profile.layers import resolve
from ftui.profile.presets import shipped_presets
from ftui.profile.profile_file import read_if_exists, relocate_paths, save_text
from ftui.profile.serialize import flat_values
from ftui.profile.toml_edit import document
from ftui.profile.toml_edit.document import ProfileDocument, parse_toml_value, toml_source
from ftui.profile.toml_reader import read_text
from tests.support.examples import examples

SHIPPED = {preset.name: preset.path.read_text(encoding="utf-8") for preset in shipped_presets()}
ODD = {
    "empty": "",
    "remarks only": "# nothing yet\n",
    "no end": '[run]\nstage = "sft"\n[train]\nmax_steps = 3 # three',
    "dotted": 'run.stage = "sft"\ntrain.max_steps = 3\ntrain.optim_args.momentum = 0.5\n',
    "inline": 'run = { stage = "sft" }\ntrain = { max_steps = 3, optim_args = { momentum = 0.5 } } # all\n'
    '[data]\ntrain=["a"]\n',
    "list": '[data]\nmax_length = 9\n\n[[data.train]]\npath = "a"\n# of b\n'
    '[[data.train]]\npath = "b"\nweight = 2\n[train]\n',
    "order": "[train.optim_args]\nmomentum = 0.5\n\n[eval]\n\n# of train\n[train]\nseed = 1\n\n"
    '  [data] # rows\n train = "x"\n',
    "long": '[data]\ntrain = [\n  "a", # first\n  "[b]",\n]\nchat_template = """\n[train]\n"""\n[train]\nseed = 1\n',
    "off": '[train]\noptim_args = "none"\nmax_grad_norm = nan\n\n\n[log]\nreport_to = []\n# the end\n',
    "quoted": '["train"]\n"seed" = 1\n[adapter.rank_pattern]\n"q.proj" = 3\n[unknown."a.b"]\nc = 1\n',
}
TEXTS = SHIPPED | ODD
FORMS = [
    lambda text: text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: "\ufeff" + text,
    lambda text: text.rstrip("\n"),
]
KEYS = [key for key in all_keys() if key[:2] not in (("data", "train"), ("data", "eval"))] + [
    ("data", "train"), ("data", "train", "0"), ("data", "train", "0", "weight"), ("data", "eval"),
    ("adapter", "rank_pattern", "v.*"), ("train", "no_such_key"), ("no_such_table", "x"),
]  # fmt: skip
VALUES = st.one_of(
    st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.booleans(), st.none(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.text("a\"\\'\n#]", max_size=4), max_size=3),
    st.dictionaries(st.text("ab.\"' ", min_size=1, max_size=4), st.integers(0, 9), max_size=2),
)  # fmt: skip


def read(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


def told(values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=repr)


def at(values: Any, key: tuple[str, ...]) -> Any:
    for name in key:
        values = values[int(name) if isinstance(values, list) else name]
    return values


def edited(draft: ProfileDocument, key: tuple[str, ...], value: Any, *, out: bool) -> ProfileDocument:
    """One step of a person; what the text cannot take leaves it as it is."""
    try:
        return draft.unset(key) if out else draft.set(key, value)
    except ProfileError:
        return draft


@settings(max_examples=examples(80))
@given(st.data())
def test_whatever_is_edited_and_undone_is_the_same_to_the_byte(data: st.DataObject) -> None:
    name, form = data.draw(st.sampled_from(sorted(TEXTS))), data.draw(st.sampled_from(FORMS))
    text = form(TEXTS[name])
    draft, seen = ProfileDocument(text), [text]
    for _ in range(data.draw(st.integers(1, 6))):
        changed = edited(draft, data.draw(st.sampled_from(KEYS)), data.draw(VALUES), out=data.draw(st.booleans()))
        if changed is not draft:
            seen.append(changed.text)
        draft = changed
    for before in reversed(seen[:-1]):
        draft = draft.undone()
        assert draft.text == before
    assert draft.undone() is draft and draft.text.encode() == text.encode()
    for after in seen[1:]:
        draft = draft.redone()
        assert draft.text == after
    assert draft.redone() is draft


@settings(max_examples=examples(80))
@given(
    st.sampled_from(sorted(TEXTS)), st.sampled_from(FORMS), st.sampled_from(KEYS), VALUES, st.booleans()
)  # fmt: skip
def test_an_edit_changes_one_value_and_no_remark(name: str, form: Any, key: Any, value: Any, out: bool) -> None:
    text = form(TEXTS[name])
    draft = edited(ProfileDocument(text), key, value, out=out)
    if draft.text == text:
        return
    after = read(draft.text)
    if out:
        with pytest.raises((KeyError, IndexError, TypeError)):
            at(after, key)
        return
    assert told(at(after, key)) == told("none" if value is None else value)
    place: Any = after
    for part in key[:-1]:
        place = place[int(part) if isinstance(place, list) else part]
    assert draft.text.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("\r\n" in draft.text) == ("\r\n" in text) or "\n" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart", "pretrain-tiny", *ODD])
def test_every_key_can_be_set_in_any_text(name: str) -> None:
    """And what else it says, remarks included, stays."""
    text = TEXTS[name]
    for key in KEYS:
        after = ProfileDocument(text).set(key, 3).text
        assert at(read(after), key) == 3
        kept = after.split("\n")
        gone = [line for line in text.split("\n") if line not in kept]
        assert name in ODD or all(line.startswith(f"{key[-1]} =") or key[1] == "train" for line in gone), (key, gone)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_everything_can_be_taken_out(name: str) -> None:
    def walk(values: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        inside = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
        for part, value in inside:
            yield (*above, str(part))
            yield from walk(value, (*above, str(part)))

    for key in walk(read(TEXTS[name])):
        assert ProfileDocument(TEXTS[name]).unset(key).text != TEXTS[name]


def test_a_remark_stays_in_its_column_and_a_number_in_its_spelling() -> None:
    draft = ProfileDocument("[train]\nlearning_rate = 4e-3      # high\nseed = 1\n\n# of eval\n[eval]\n")
    draft = draft.put(("train", "learning_rate"), "2.5e-4").set(("train", "max_steps"), 100)
    assert draft.text == "[train]\nlearning_rate = 2.5e-4    # high\nseed = 1\nmax_steps = 100\n\n# of eval\n[eval]\n"


def test_a_new_table_stands_where_the_reference_has_it() -> None:
    draft = ProfileDocument('[run]\nstage = "sft"\n\n# rows\n[data]\ntrain = "x"\n')
    draft = draft.set(("model", "name_or_path"), "a/b").set(("health", "max_bad_steps"), 1)
    assert draft.text == (
        '[run]\nstage = "sft"\n\n[model]\nname_or_path = "a/b"\n\n# rows\n[data]\ntrain = "x"\n\n'
        "[health]\nmax_bad_steps = 1\n"
    )


def test_a_table_of_details_comes_and_goes() -> None:
    text = '[train]\noptim = "sgd"\noptim_args = "none"\n\n[eval]\n'
    draft = ProfileDocument(text).set(("train", "optim_args", "momentum"), 0.9)
    assert read(draft.text)["train"] == {"optim": "sgd", "optim_args": {"momentum": 0.9}}
    assert "optim_args" not in draft.unset(("train", "optim_args", "momentum")).text


def test_sources_are_added_changed_and_taken_out() -> None:
    draft = (
        ProfileDocument(ODD["list"])
        .set(("data", "train", "0", "weight"), 0.5)
        .set(("data", "train", "2"), {"path": "c"})
    )
    assert read(draft.text)["data"]["train"] == [
        {"path": "a", "weight": 0.5},
        {"path": "b", "weight": 2},
        {"path": "c"},
    ]
    assert "# of b" in draft.text
    assert read(draft.unset(("data", "train", "0")).text)["data"]["train"] == [
        {"path": "b", "weight": 2},
        {"path": "c"},
    ]


STAGES = """[train]
seed = 1

[[curriculum]]
fraction = 0.25  # the shortest

[[curriculum]]
sort_by = "loss"

# of eval
[eval]
"""


def test_a_list_of_tables_at_the_top_comes_grows_and_goes() -> None:
    start = ProfileDocument("[train]\nseed = 1\n\n# of eval\n[eval]\n")
    draft = start.set(("curriculum",), [{"fraction": 0.5}]).set(("curriculum", "1"), {"sort_by": "loss"})
    draft = draft.put(("curriculum", "0", "fraction"), "0.25")
    assert draft.text == STAGES.replace("  # the shortest", "")
    assert ProfileDocument(STAGES).put(("curriculum", "1", "learning_rate"), "2e-5").text == STAGES.replace(
        '"loss"\n', '"loss"\nlearning_rate = 2e-5\n'
    )
    assert draft.unset(("curriculum", "1", "sort_by")).unset(("curriculum", "0", "fraction")).text == start.text
    assert draft.unset(("curriculum",)).text == start.text


def test_a_writer_that_loses_something_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "replace_value",
        "_replace_inside",
        "_append",
        "add_beside",
        "add_key",
        "_replace_tables",
        "_rewrite_around",
    ):
        monkeypatch.setattr(document, name, lambda text, key, source: "[train]\nseed = 7\n")
    with pytest.raises(ProfileError, match="cannot be set"):
        ProfileDocument("[train]\nseed = 1\nmax_steps = 3\n").set(("train", "seed"), 7)


def test_what_is_no_value_is_refused() -> None:
    for source in ("", "abc", "[1", "1\n[x]\na = 1", "1 # a\nb = 2"):
        with pytest.raises(ProfileError):
            ProfileDocument("").put(("train", "seed"), source)
    with pytest.raises(ProfileError, match="This is not TOML"):
        ProfileDocument("[x").set(("train", "seed"), 1)


@given(VALUES.filter(lambda value: value is not None))
def test_a_value_is_spelt_as_it_is_read(value: Any) -> None:
    assert told(parse_toml_value(toml_source(value))) == told(value)


# -- files


def test_a_file_is_its_text(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for data in (b"\xef\xbb\xbf[run]\r\n", b"", b"[run]"):
        path.write_bytes(data)
        save_text(path, read_text(path))
        assert path.read_bytes() == data
    path.write_bytes(b"\xff")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_text(path)
    assert read_if_exists(tmp_path / "none.toml") is None


def test_modes_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "p.toml", tmp_path / "link.toml"
    path.write_text("a = 1\n")
    path.chmod(0o640)
    link.symlink_to(path)
    save_text(link, "a = 2\n")
    assert link.is_symlink() and path.read_text() == "a = 2\n" and stat.S_IMODE(path.stat().st_mode) == 0o640
    before = os.umask(0o027)
    try:
        save_text(tmp_path / "new.toml", "")
        assert stat.S_IMODE((tmp_path / "new.toml").stat().st_mode) == 0o640
    finally:
        os.umask(before)
    with pytest.raises(DiskError, match="cannot be written"):
        save_text(tmp_path / "no folder" / "p.toml", "")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.toml", "new.toml", "p.toml"]


@pytest.mark.parametrize("name", sorted(SHIPPED))
@pytest.mark.parametrize("folder", ["work", "."])
def test_a_copy_means_the_same_elsewhere(name: str, folder: str, tmp_path: Path) -> None:
    """Beside a copy of the quickstart's files paths stay relative, and elsewhere they become absolute."""
    origin = next(preset.path for preset in shipped_presets() if preset.name == name)
    place = tmp_path / folder / f"{name}.toml"
    place.parent.mkdir(exist_ok=True)
    save_text(place, relocate_paths(read_text(origin), origin.parent, place.parent))
    assert flat_values(resolve(place).profile) == flat_values(resolve(origin).profile)


def test_near_paths_stay_relative(tmp_path: Path) -> None:
    (tmp_path / "a" / "base").mkdir(parents=True)
    text = (
        '[model]\nname_or_path = "./base"\n[data]\ntrain = [{path = "x.jsonl"}, "../y.jsonl", "owner/rows", "/z.csv"]\n'
    )
    moved = read(relocate_paths(text, tmp_path / "a", tmp_path))
    assert moved["model"]["name_or_path"] == "a/base"
    assert moved["data"]["train"] == [{"path": "a/x.jsonl"}, "y.jsonl", "owner/rows", "/z.csv"]
    assert relocate_paths(text, tmp_path / "a", tmp_path / "a") == text
    back = read(relocate_paths(relocate_paths(text, tmp_path / "a", tmp_path), tmp_path, tmp_path / "a"))
    assert back == read(text)


# -- what was used lately


def test_what_was_used_lately_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert recent.recent_names("model") == []
    for number in range(30):
        recent.remember("model", f"owner/{number % 25}")
    recent.remember("data", "rows.jsonl")
    recent.remember("data", "")
    recent.remember("data", "x" * 5000)
    found = recent.recent_names("model")
    assert len(found) == recent.MOST and found[:6] == [f"owner/{n}" for n in (4, 3, 2, 1, 0, 24)]
    assert recent.recent_names("data") == ["rows.jsonl"] and recent.recent_names("profile") == []
    (tmp_path / "ftui" / "recent.json").write_bytes(b"{damaged")
    assert recent.recent_names("data") == []
    recent.remember("profile", "p.toml")
    assert recent.recent_names("profile") == ["p.toml"]


def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    recent.remember("model", "a/b")
    assert recent.recent_names("model") == []


REMARKED = """\
[ data ]  # rows
max_length = 5

# the first
[[data.train]]
path = "a"  # short
[[data.train]]
path = "b"

# remarks on the adapter
[adapter.rank_pattern]
q_proj = 8

# remarks on training
[train]
lr_scheduler_kwargs.min_lr = 1e-5  # the floor
seed = 1
"""


@pytest.mark.parametrize(
    "change",
    [
        lambda: document.remove_key(REMARKED, ("adapter", "rank_pattern", "q_proj")),
        lambda: document.remove_key(REMARKED, ("data", "train", "1")),
        lambda: document.remove_key(REMARKED, ("data", "train")),
        lambda: document.set_key(REMARKED, ("data", "train"), '"z"'),
        lambda: document.set_key(REMARKED, ("data", "train", "1"), '"q"'),
        lambda: document.set_key(REMARKED, ("data", "train", "0", "weight"), "2"),
        lambda: document.set_key(REMARKED, ("adapter", "rank_pattern"), '"none"'),
        lambda: document.set_key(REMARKED, ("train", "lr_scheduler_kwargs", "min_lr_rate"), "0.1"),
    ],
)
def test_no_change_takes_a_remark_or_a_line_of_another_key(change: Callable[[], str]) -> None:
    made = change().splitlines()
    for line in (
        "[ data ]  # rows",
        "max_length = 5",
        "# the first",
        "# remarks on the adapter",
        "[train]",
        "seed = 1",
    ):
        assert line in made
    assert made.index("# remarks on training") < made.index("[train]")
    assert "lr_scheduler_kwargs.min_lr = 1e-5  # the floor" in made
