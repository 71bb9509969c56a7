"""What Axolotl makes tokens of: `tokens`, `special_tokens`, `added_tokens_overrides` (its loaders/tokenizer.py).

Each is added where the tokenizer lacks it. A chat template alone adds none.
"""

import contextlib
from typing import Any

from ftui.importers.config_file import Leaf
from ftui.importers.draft import ProfileDraft
from ftui.importers.rules import Rule, drops, each, says
from ftui.importers.tools.axolotl_data import template_named
from ftui.importers.values import Unfit, text, texts
from ftui.profile.sections.data import TEMPLATE_MARKS

END = "special_tokens.eos_token"
OWN_END = (
    "the end of a text is the tokenizer's own here; where that is another one, name this one in tokenizer_config.json "
    "of a copy of the base"
)


def _tokens(draft: ProfileDraft, leaf: Leaf) -> list[str]:
    """All of them, in the order in which they are added. Raises `Unfit` where the value of `leaf` is none."""
    texts(leaf.value)
    overrides = [other.value for other in draft.document.leaves if other.path[0] == "added_tokens_overrides"]
    end = [draft.raw(END)] if _is_end_of_turn(draft) else []
    lists = [draft.raw("tokens"), overrides, end, draft.raw("special_tokens.additional_special_tokens")]
    return list(dict.fromkeys(token for given in lists for token in _as_texts(given)))


def _as_texts(value: Any) -> list[str]:
    with contextlib.suppress(Unfit):  # reported where it stands
        return texts(value) if value else []
    return []


def _is_end_of_turn(draft: ProfileDraft) -> bool:
    marks = TEMPLATE_MARKS.get(template_named(draft))
    return marks is not None and draft.raw(END) == marks[-1]


_added = says("model.extra_special_tokens", _tokens, "added where the tokenizer lacks them")


def _end(draft: ProfileDraft, leaf: Leaf) -> None:
    """The end of text, which is that of a turn where a template with a mark of its own says so, there and here."""
    name = template_named(draft)
    if _is_end_of_turn(draft):
        _added(draft, leaf)
    elif name in TEMPLATE_MARKS:
        raise Unfit(f"data.chat_template = {name} ends a turn, and a text, with {TEMPLATE_MARKS[name][-1]}")
    else:
        raise Unfit(OWN_END)


def _ends_of_turns(draft: ProfileDraft, leaf: Leaf) -> None:
    """eot_tokens, which must be tokens already."""
    marks = TEMPLATE_MARKS.get(template_named(draft))
    if marks is None or texts(leaf.value) != [marks[-1]]:
        raise Unfit("the end of a turn comes from the chat template")
    draft.drop(leaf, "as the chat template says")


def _override(draft: ProfileDraft, leaf: Leaf) -> None:
    text(leaf.value)
    _added(draft, leaf)


RULES: dict[str, Rule] = {
    **each(_added, "tokens special_tokens.additional_special_tokens"),
    "added_tokens_overrides.*": _override,
    END: _end,
    "eot_tokens": _ends_of_turns,
    **drops("nothing is trained on it", "special_tokens.pad_token special_tokens.unk_token"),
    **drops("a text begins as the tokenizer says", "special_tokens.bos_token", matters=True),
}
