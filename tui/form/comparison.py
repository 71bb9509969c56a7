"""What differs between the draft and its file on the disk, a tier, or another profile. No Textual."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ftui.profile.paths import CURRICULUM
from ftui.profile.presets import shipped_presets
from ftui.profile.tiers import tier_layer, tier_names
from ftui.profile.toml_reader import read_text
from ftui.text import shown

from ..drawing.editor.form_diff import Difference, DiffPage, text_difference
from ..drawing.editor.form_pick import Choice
from ..drawing.wording import place
from .form_fields import Field, all_fields
from .profile_form import ProfileForm
from .snapshot import Snapshot, take_snapshot
from .text_values import format_value


def list_comparisons(form: ProfileForm, proposed_tier: str) -> list[Choice]:
    """What the draft can be compared with; the tiers of the draft and of this machine are the first tiers."""
    words = {proposed_tier: "suits this machine", form.tier_name: "lies below this profile"}
    tiers = sorted(tier_names(), key=lambda name: (name != form.tier_name, name != proposed_tier))
    profiles = sorted(path for path in form.path.parent.glob("*.toml") if path != form.path)
    return [
        *([] if form.on_disk is None else [Choice("the file", place(form.path), ("file", ""))]),
        *(Choice(f"tier {name}", words.get(name, ""), ("tier", name), group="tiers") for name in tiers),
        *(_profile_choice(path.name, place(path), path, "profiles in this folder") for path in profiles),
        *(
            _profile_choice(preset.name, preset.description, preset.path, "profiles that come with ftui")
            for preset in shipped_presets()
        ),
    ]


def _profile_choice(name: str, words: str, path: Path, group: str) -> Choice:
    return Choice(name, words, ("profile", str(path)), group=group)


def compare(form: ProfileForm, choice: Choice) -> DiffPage:
    """The draft beside one of `list_comparisons`, key by key; beside the file on the disk, line by line too.

    Raises:
        FtuiError: the other one cannot be read.
    """
    kind, name = choice.value
    here = form.snapshot
    if kind == "file":
        on_disk = form.on_disk or ""
        lines = text_difference(shown(form.draft.text, newlines=True), shown(on_disk, newlines=True))
        return DiffPage("the file", _differences(here, take_snapshot(on_disk, form.path, tier=form.tier)), lines)
    if kind == "tier":
        values = tier_layer(name).values
        fields = [field for field in all_fields() if field.key in values]
        return DiffPage(choice.name, _unequal((f, here.value(f, f.key), values[f.key]) for f in fields))
    return DiffPage(choice.name, _differences(here, take_snapshot(read_text(Path(name)), Path(name))))


def _differences(here: Snapshot, there: Snapshot) -> list[Difference]:
    are_valid = here.profile is not None and there.profile is not None
    return _unequal(
        (field, _value(here, field, are_valid), _value(there, field, are_valid))
        for field in all_fields()
        if field.kind != "group" and not (len(field.key) > 2 and field.key[0] == "data")
        and not (len(field.key) > 1 and field.key[:1] == CURRICULUM)
    )  # fmt: skip


def _value(snapshot: Snapshot, field: Field, are_valid: bool) -> Any:
    """Of a valid profile with absolute paths, so that the same file from another folder is the same."""
    key = field.key
    return snapshot.effective[key] if are_valid and key in snapshot.effective else snapshot.value(field, key)


def _unequal(values: Iterable[tuple[Field, Any, Any]]) -> list[Difference]:
    texts = (Difference(field.name, format_value(here), format_value(there)) for field, here, there in values)
    return [difference for difference in texts if difference.here != difference.there]
