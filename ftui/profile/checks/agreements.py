"""What the keys of a profile must agree on: a table of checks, each telling which keys, why, and what to write instead.

They run on whatever is valid: a check that needs a value which is faulty or absent is left out.
"""

from collections.abc import Iterator
from pathlib import Path

from ftui.profile.checks import data_checks, training_checks
from ftui.profile.checks.known_values import Contradiction, KnownValues, UnknownError, contradiction
from ftui.profile.sections.adapter import LORA_SHAPE, unused_keys
from ftui.profile.sections.data import sources
from ftui.profile.sections.model import FULL_COMMIT
from ftui.text import cut_front, shown


def contradictions(facts: KnownValues) -> Iterator[Contradiction]:
    """All of them, in the order of the table."""
    for check in CHECKS:
        try:
            yield from check(facts)
        except UnknownError:
            continue


def _one_source(facts: KnownValues) -> Iterator[Contradiction]:
    named, new = facts("model.name_or_path"), facts("model.from_scratch")
    if (named is None) == (new is None):
        both = "model.name_or_path model.from_scratch" if named is not None else "model"
        yield contradiction(both, "give one of name_or_path and from_scratch", "Leave the other out.")


def _trusted_code(facts: KnownValues) -> Iterator[Contradiction]:
    if not facts("model.trust_remote_code"):
        return
    name, revision = facts("model.name_or_path"), facts("model.revision")
    if name is None:
        why = "trust_remote_code goes with name_or_path: a model from scratch brings no code"
        yield contradiction("model.trust_remote_code model.from_scratch", why, "Leave trust_remote_code out.")
    elif not Path(name).is_absolute() and not FULL_COMMIT.fullmatch(revision or ""):
        why = (
            "trust_remote_code needs revision = the full commit (40 hex digits) whose code you have read: "
            "a branch or tag can be moved to other code"
        )
        yield contradiction("model.trust_remote_code model.revision", why, "Set model.revision to that commit.")


def _scratch_shape(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("model.from_scratch") is None:
        return
    here = "model.from_scratch."
    width, heads = facts(here + "hidden_size"), facts(here + "num_attention_heads")
    if width % (2 * heads):
        yield contradiction(
            f"{here}hidden_size {here}num_attention_heads",
            "hidden_size must be an even multiple of num_attention_heads",
            f"Set hidden_size to a multiple of {2 * heads}, or other heads.",
        )
    shared, kind = facts(here + "num_key_value_heads"), facts(here + "model_type")
    keys = f"{here}num_key_value_heads {here}num_attention_heads"
    if kind == "gpt2" and shared != heads:
        why = "gpt2 shares no heads: leave num_key_value_heads out"
        yield contradiction(f"{keys} {here}model_type", why, f"Or set num_key_value_heads = {heads}.")
    elif heads % shared:
        why = "num_attention_heads must be a multiple of num_key_value_heads"
        yield contradiction(keys, why, f"Set num_key_value_heads to a divisor of {heads}.")


def _scratch_is_whole(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("model.from_scratch") is not None and facts("adapter.method") != "full":
        why = 'a model from scratch is trained whole: set adapter.method = "full"'
        yield contradiction("adapter.method model.from_scratch", why, "There is nothing to freeze in it.")


def _stored_type(facts: KnownValues) -> Iterator[Contradiction]:
    if facts("model.dtype") == "float16" and facts("adapter.method") in ("full", "freeze"):
        # AdamW's epsilon is 0 in float16, and so is the square of most gradients: 0 / 0
        why = 'weights that are trained cannot be stored in float16: set model.dtype = "bfloat16"'
        yield contradiction("model.dtype adapter.method", why, 'Or leave it at "auto".')


def _keys_suit_method(facts: KnownValues) -> Iterator[Contradiction]:
    for name in unused_keys(facts("adapter.method")):
        dotted = f"adapter.{name}"
        try:
            value = facts(dotted)
        except UnknownError:
            continue
        is_default = value == type(facts.sections["adapter"]).model_fields[name].default
        if facts.is_wished(dotted) if name in LORA_SHAPE else not is_default:
            why = f'method = "{facts("adapter.method")}" has no use for {name}'
            yield contradiction(f"{dotted} adapter.method", why, f"Leave {name} out, or set another method.")


def _frozen_base(facts: KnownValues) -> Iterator[Contradiction]:
    method = facts("adapter.method")
    if method == "freeze" and facts("adapter.trainable_layers") is None and not facts("adapter.trainable_modules"):
        why = "freeze trains what trainable_layers or trainable_modules names: give one of them"
        yield contradiction("adapter.method", why, "trainable_layers = 2 trains the last two.")
    if facts("adapter.load_in_8bit") and method != "lora":
        why = 'load_in_8bit holds the frozen base of method = "lora"; qlora holds it in 4 bits'
        yield contradiction("adapter.load_in_8bit adapter.method", why, "Leave load_in_8bit out.")


def _bias(facts: KnownValues) -> Iterator[Contradiction]:
    method, in_8bit = facts("adapter.method"), facts("adapter.load_in_8bit")
    if facts("adapter.bias") != "none" and (method == "qlora" or (method == "lora" and in_8bit)):
        why = 'bias is trained beside an unquantised base only (method = "lora", no load_in_8bit)'
        keys = "adapter.bias adapter.method" if method == "qlora" else "adapter.bias adapter.load_in_8bit"
        yield contradiction(keys, why, 'Set bias = "none", or do not quantise.')


def _which_layers(facts: KnownValues) -> Iterator[Contradiction]:
    layers, targets = facts("adapter.layers_to_transform"), facts("adapter.target_modules")
    if layers is None and facts("adapter.layers_pattern") is not None:
        why = "layers_pattern says where to find the layers of layers_to_transform: give both"
        yield contradiction("adapter.layers_pattern adapter.layers_to_transform", why, "Or leave layers_pattern out.")
    if layers is not None and isinstance(targets, str) and targets != "all-linear":
        why = "layers_to_transform goes with a list of target_modules; a regular expression says it all"
        yield contradiction("adapter.layers_to_transform adapter.target_modules", why, "Give target_modules as a list.")


def _orthogonal(facts: KnownValues) -> Iterator[Contradiction]:
    ranks = (facts("adapter.r"), *facts("adapter.rank_pattern").values())
    if facts("adapter.init_lora_weights") == "orthogonal" and any(r % 2 for r in ranks):
        keys = "adapter.init_lora_weights adapter.r adapter.rank_pattern"
        yield contradiction(keys, "orthogonal matrices need an even r", "Set r to an even number.")


def _rows(facts: KnownValues) -> Iterator[Contradiction]:
    if not sources(facts("data.train")):
        yield contradiction("data.train", "names nothing to train on", "Name a file, a folder or a data set.")


AMOUNTS = ("weight", "num_samples")
"""Keys of a source that say how much of it comes in an epoch."""

LONGEST_NAME = 40  # characters of a path: its end tells most


def _mixture(facts: KnownValues) -> Iterator[Contradiction]:
    each = sources(facts("data.train"))
    temperature = facts("data.mixing_temperature")
    for number, source in enumerate(each):
        here = f"data.train.{number}"
        if source.num_samples is not None and source.weight != 1:
            why = "num_samples and weight both say how much of a source comes in an epoch"
            yield contradiction(f"{here}.num_samples {here}.weight", why, "Leave one of them out.")
    amounts = [(n, one, key) for n, one in enumerate(each) for key in AMOUNTS if getattr(one, key) not in (1, None)]
    if amounts and temperature is not None:
        told = ", ".join(f"{cut_front(shown(one.path), LONGEST_NAME)} has {key}" for _, one, key in amounts)
        why = f"mixing_temperature sets the weights of all sources, and {told}"
        keys = " ".join(["data.mixing_temperature", *(f"data.train.{n}.{key}" for n, _, key in amounts)])
        names = " and ".join(key for key in AMOUNTS if any(key == one for _, _, one in amounts))
        yield contradiction(keys, why, f"Leave mixing_temperature out, or {names} of every source.")
    if temperature is not None and len(each) == 1:
        why = "mixing_temperature mixes several sources, and data.train is one"
        yield contradiction("data.mixing_temperature data.train", why, "List them, or leave mixing_temperature out.")


def _rows_to_evaluate_on(facts: KnownValues) -> Iterator[Contradiction]:
    rows = facts("data.eval")
    if any(source.weight != 1 for source in sources(rows)):
        yield contradiction("data.eval", "rows to evaluate on have no weight", "Leave weight out.")
    if any(source.num_samples is not None for source in sources(rows)):
        why = "rows to evaluate on are all taken: num_samples is for rows to train on"
        yield contradiction("data.eval", why, "Leave num_samples out.")
    if rows is not None and not sources(rows):
        yield contradiction("data.eval", "names nothing to evaluate on", 'Name a file, or write "none".')
    chosen = [dotted for dotted in training_checks.EVAL_ROWS if facts(dotted) is not None]
    if len(chosen) > 1:
        names = " and ".join(dotted.partition(".")[2] for dotted in chosen)
        yield contradiction(" ".join(chosen), f"give one of {names}", "Leave the others out.")


CHECKS = (
    _one_source, _trusted_code, _scratch_shape, _scratch_is_whole, _stored_type, _keys_suit_method, _frozen_base, _bias,
    _which_layers, _orthogonal, _rows, _mixture, _rows_to_evaluate_on, *data_checks.CHECKS,
    *training_checks.CHECKS,
)  # fmt: skip
