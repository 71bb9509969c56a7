"""What the keys of `[data]` must agree on: sources and their amounts, rows for evaluation, forms of rows."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from ftui.profile.checks.known_values import EVAL_ROWS, KnownValues, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.data import sources
from ftui.profile.sections.row_forms import COLUMNS, OF_TURNS
from ftui.text import cut_front, shown, toml_value

AMOUNTS = ("weight", "num_samples")
"""Keys of a source that say how much of it comes in an epoch."""

LONGEST_NAME = 40  # characters of a path: its end tells most


def _rows(values: KnownValues) -> Iterator[ProfileFault]:
    if not sources(values("data.train")):
        yield contradiction("data.train", "names nothing to train on", "Name a file, a folder or a data set.")


def _mixture(values: KnownValues) -> Iterator[ProfileFault]:
    each = sources(values("data.train"))
    temperature = values("data.mixing_temperature")
    for number, source in enumerate(each):
        here = f"data.train.{number}"
        if source.num_samples is not None and source.weight != 1:
            why = "num_samples and weight both say how much of a source comes in an epoch"
            yield contradiction(f"{here}.num_samples {here}.weight", why, "Leave one of them out.")
    amounts = [(n, one, key) for n, one in enumerate(each) for key in AMOUNTS if getattr(one, key) not in (1, None)]
    if amounts and temperature is not None:
        reasons = ", ".join(f"{cut_front(shown(one.path), LONGEST_NAME)} has {key}" for _, one, key in amounts)
        why = f"mixing_temperature sets the weights of all sources, and {reasons}"
        keys = " ".join(["data.mixing_temperature", *(f"data.train.{n}.{key}" for n, _, key in amounts)])
        names = " and ".join(key for key in AMOUNTS if any(key == one for _, _, one in amounts))
        yield contradiction(keys, why, f"Leave mixing_temperature out, or {names} of every source.")
    if temperature is not None and len(each) == 1:
        why = "mixing_temperature mixes several sources, and data.train is one"
        yield contradiction("data.mixing_temperature data.train", why, "List them, or leave mixing_temperature out.")


def _rows_to_evaluate_on(values: KnownValues) -> Iterator[ProfileFault]:
    rows = values("data.eval")
    if any(source.weight != 1 for source in sources(rows)):
        yield contradiction("data.eval", "evaluation rows take no weight", "Leave weight out.")
    if any(source.num_samples is not None for source in sources(rows)):
        why = "all evaluation rows are used: num_samples is for training rows"
        yield contradiction("data.eval", why, "Leave num_samples out.")
    if rows is not None and not sources(rows):
        yield contradiction("data.eval", "names nothing to evaluate on", 'Name a file, or write "none".')
    chosen = [dotted for dotted in EVAL_ROWS if values(dotted) is not None]
    if len(chosen) > 1:
        names = " and ".join(dotted.partition(".")[2] for dotted in chosen)
        yield contradiction(" ".join(chosen), f"give one of {names}", "Leave the others out.")


def _plain_text(values: KnownValues) -> Iterator[ProfileFault]:
    if values("run.stage") != "pretrain":
        return
    for where, form, _, _ in _shapes(values):
        if form not in ("auto", "text", "tokenized"):
            why = f'stage = "pretrain" trains on plain text, and format = "{form}" is none'
            yield contradiction(f"{where}.format run.stage", why, 'Set run.stage = "sft".')


def _columns(values: KnownValues) -> Iterator[ProfileFault]:
    for where, form, columns, _ in _shapes(values):
        known = COLUMNS[form] if form in COLUMNS else frozenset().union(*COLUMNS.values())
        unknown = {ours: theirs for ours, theirs in columns.items() if theirs and ours not in known}  # "" is not read
        if unknown:
            which = "no form has" if form == "auto" else f'format = "{form}" does not have'
            why = f"columns names {', '.join(map(repr, unknown))}, which {which}: write the form's name first"
            yield contradiction(f"{where}.columns {where}.format", why, _meant(unknown, known))
        twice = [theirs for theirs, number in Counter(filter(None, columns.values())).items() if number > 1]
        if twice:
            yield contradiction(f"{where}.columns", f"columns names {twice[0]!r} twice", "A column has one meaning.")


def _meant(unknown: Mapping[str, str], known: Collection[str]) -> str:
    """What to write in place of names that no form has."""
    if all(theirs in known for theirs in unknown.values()):
        turned = {theirs: ours for ours, theirs in unknown.items()}
        return f"Swap the names: columns = {toml_value(turned)}."
    near = [close[0] for ours in unknown if (close := get_close_matches(ours, known, n=1))]
    return f"Did you mean {', '.join(near)}?" if len(near) == len(unknown) else f"There are {', '.join(sorted(known))}."


def _roles(values: KnownValues) -> Iterator[ProfileFault]:
    for where, form, _, roles in _shapes(values):
        if roles and form in COLUMNS and not COLUMNS[form] >= OF_TURNS:
            why = f'roles name the speakers of turns, and rows of format = "{form}" have no turns'
            yield contradiction(f"{where}.roles {where}.format", why, "Leave roles out.")


def _shapes(values: KnownValues) -> Iterator[tuple[str, str, Mapping[str, str], Mapping[str, str]]]:
    """For `[data]` and each source that says something of its own: where it stands, form, columns, roles."""
    form = values("data.format")
    each = [
        (key, number, one) for key in ("train", "eval") for number, one in enumerate(sources(values(f"data.{key}")))
    ]
    if not any(one.format for _, _, one in each):  # else data's columns may be for others
        yield "data", form, values("data.columns"), values("data.roles")
    for key, number, one in each:
        if one.format or one.columns or one.roles:
            yield f"data.{key}.{number}", one.format or form, one.columns, one.roles


CHECKS = (_rows, _mixture, _rows_to_evaluate_on, _plain_text, _columns, _roles)
