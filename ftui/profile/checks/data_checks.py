"""What `[data]` says of the form of its rows, where it cannot be so."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from ftui.profile.checks.known_values import Contradiction, KnownValues, contradiction
from ftui.profile.sections.data import sources
from ftui.profile.sections.row_forms import COLUMNS, OF_TURNS
from ftui.text import toml_value


def _plain_text(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("run.stage") != "pretrain":
        return
    for where, form, _, _ in _shapes(facts):
        if form not in ("auto", "text", "tokenized"):
            why = f'stage = "pretrain" trains on plain text, and format = "{form}" is none'
            yield contradiction(f"{where}.format run.stage", why, 'Set run.stage = "sft".')


def _columns(facts: KnownValues) -> Iterator[Contradiction]:
    for where, form, columns, _ in _shapes(facts):
        known = COLUMNS[form] if form in COLUMNS else frozenset().union(*COLUMNS.values())
        unknown = {ours: theirs for ours, theirs in columns.items() if ours not in known}
        if unknown:
            which = "no form has" if form == "auto" else f'format = "{form}" does not have'
            why = f"columns names {', '.join(map(repr, unknown))}, which {which}: the form's name stands first"
            yield contradiction(f"{where}.columns {where}.format", why, _meant(unknown, known))
        twice = [theirs for theirs, number in Counter(filter(None, columns.values())).items() if number > 1]
        if twice:
            yield contradiction(f"{where}.columns", f"columns names {twice[0]!r} twice", "A column has one meaning.")


def _meant(unknown: Mapping[str, str], known: Collection[str]) -> str:
    """What to write in place of names that no form has."""
    if all(theirs in known for theirs in unknown.values()):
        turned = {theirs: ours for ours, theirs in unknown.items()}
        return f"Turn it round: columns = {toml_value(turned)}."
    near = [close[0] for ours in unknown if (close := get_close_matches(ours, known, n=1))]
    return f"Is {', '.join(near)} meant?" if len(near) == len(unknown) else f"There are {', '.join(sorted(known))}."


def _roles(facts: KnownValues) -> Iterator[Contradiction]:
    for where, form, _, roles in _shapes(facts):
        if roles and form in COLUMNS and not COLUMNS[form] >= OF_TURNS:
            why = f'roles are who speaks in turns, and rows of format = "{form}" have none'
            yield contradiction(f"{where}.roles {where}.format", why, "Leave roles out.")


def _shapes(facts: KnownValues) -> Iterator[tuple[str, str, Mapping[str, str], Mapping[str, str]]]:
    """For `[data]` and each source that says something of its own: where it stands, form, columns, roles."""
    form = facts("data.format")
    each = [(key, number, one) for key in ("train", "eval") for number, one in enumerate(sources(facts(f"data.{key}")))]
    if not any(one.format for _, _, one in each):  # else data's columns may be for others
        yield "data", form, facts("data.columns"), facts("data.roles")
    for key, number, one in each:
        if one.format or one.columns or one.roles:
            yield f"data.{key}.{number}", one.format or form, one.columns, one.roles


CHECKS = (_plain_text, _columns, _roles)
