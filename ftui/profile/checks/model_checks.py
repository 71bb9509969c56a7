"""What the keys of `[model]` and `[adapter]` must agree on."""

from collections.abc import Iterator
from pathlib import Path

from ftui.profile.checks.known_values import KnownValues, UnknownError, contradiction
from ftui.profile.origins import ProfileFault
from ftui.profile.sections.adapter import LORA_SHAPE, unused_keys
from ftui.profile.sections.model import FULL_COMMIT


def _one_source(values: KnownValues) -> Iterator[ProfileFault]:
    named, new = values("model.name_or_path"), values("model.from_scratch")
    why = "give one of name_or_path and from_scratch"
    if named is not None and new is not None:
        yield contradiction("model.name_or_path model.from_scratch", why, "Leave the other out.")
    elif named is None and new is None:
        yield contradiction("model", why, "Set model.name_or_path to the model to train: a folder, or owner/name.")


def _trusted_code(values: KnownValues) -> Iterator[ProfileFault]:
    if not values("model.trust_remote_code"):
        return
    name, revision = values("model.name_or_path"), values("model.revision")
    if name is None:
        why = "trust_remote_code needs name_or_path: a model from scratch has no code of its own"
        yield contradiction("model.trust_remote_code model.from_scratch", why, "Leave trust_remote_code out.")
    elif not Path(name).is_absolute() and not FULL_COMMIT.fullmatch(revision or ""):
        why = (
            "trust_remote_code needs revision = the full commit (40 hex digits) whose code you have read: "
            "a branch or tag can be moved to other code"
        )
        yield contradiction("model.trust_remote_code model.revision", why, "Set model.revision to that commit.")


def _scratch_shape(values: KnownValues) -> Iterator[ProfileFault]:
    if values("model.from_scratch") is None:
        return
    here = "model.from_scratch."
    width, heads = values(here + "hidden_size"), values(here + "num_attention_heads")
    if width % (2 * heads):
        yield contradiction(
            f"{here}hidden_size {here}num_attention_heads",
            "hidden_size must be an even multiple of num_attention_heads",
            f"Set hidden_size to a multiple of {2 * heads}, or change the number of heads.",
        )
    shared, kind = values(here + "num_key_value_heads"), values(here + "model_type")
    keys = f"{here}num_key_value_heads {here}num_attention_heads"
    if kind == "gpt2" and shared != heads:
        why = "gpt2 shares no heads: leave num_key_value_heads out"
        yield contradiction(f"{keys} {here}model_type", why, f"Or set num_key_value_heads = {heads}.")
    elif heads % shared:
        why = "num_attention_heads must be a multiple of num_key_value_heads"
        yield contradiction(keys, why, f"Set num_key_value_heads to a divisor of {heads}.")


def _scratch_is_whole(values: KnownValues) -> Iterator[ProfileFault]:
    if values("model.from_scratch") is not None and values("adapter.method") != "full":
        why = 'a model from scratch is trained in full: set adapter.method = "full"'
        yield contradiction("adapter.method model.from_scratch", why, "There is nothing to freeze in it.")


def _stored_type(values: KnownValues) -> Iterator[ProfileFault]:
    if values("model.dtype") == "float16" and values("adapter.method") in ("full", "freeze"):
        # AdamW's epsilon is 0 in float16, and so is the square of most gradients: 0 / 0
        why = 'weights that are trained cannot be stored in float16: set model.dtype = "bfloat16"'
        yield contradiction("model.dtype adapter.method", why, 'Or leave it at "auto".')


def _keys_suit_method(values: KnownValues) -> Iterator[ProfileFault]:
    for name in unused_keys(values("adapter.method")):
        dotted = f"adapter.{name}"
        try:
            value = values(dotted)
        except UnknownError:
            continue
        is_default = value == type(values.sections["adapter"]).model_fields[name].default
        if values.is_wished(dotted) if name in LORA_SHAPE else not is_default:
            why = f'method = "{values("adapter.method")}" does not use {name}'
            yield contradiction(f"{dotted} adapter.method", why, f"Leave {name} out, or set another method.")


def _frozen_base(values: KnownValues) -> Iterator[ProfileFault]:
    method = values("adapter.method")
    if method == "freeze" and values("adapter.trainable_layers") is None and not values("adapter.trainable_modules"):
        why = "freeze trains what trainable_layers or trainable_modules names: give one of them"
        yield contradiction("adapter.method", why, "trainable_layers = 2 trains the last two.")
    if values("adapter.load_in_8bit") and method != "lora":
        why = 'load_in_8bit needs method = "lora"; qlora stores the base in 4 bits'
        yield contradiction("adapter.load_in_8bit adapter.method", why, "Leave load_in_8bit out.")


def _bias(values: KnownValues) -> Iterator[ProfileFault]:
    method, in_8bit = values("adapter.method"), values("adapter.load_in_8bit")
    if values("adapter.bias") != "none" and (method == "qlora" or (method == "lora" and in_8bit)):
        why = 'bias is trained beside an unquantised base only (method = "lora", no load_in_8bit)'
        keys = "adapter.bias adapter.method" if method == "qlora" else "adapter.bias adapter.load_in_8bit"
        yield contradiction(keys, why, 'Set bias = "none", or do not quantise.')


def _which_layers(values: KnownValues) -> Iterator[ProfileFault]:
    layers, targets = values("adapter.layers_to_transform"), values("adapter.target_modules")
    if layers is None and values("adapter.layers_pattern") is not None:
        why = "layers_pattern says where to find the layers of layers_to_transform: give both"
        yield contradiction("adapter.layers_pattern adapter.layers_to_transform", why, "Or leave layers_pattern out.")
    if layers is not None and isinstance(targets, str) and targets != "all-linear":
        why = "layers_to_transform goes with a list of target_modules; a regular expression selects layers by itself"
        yield contradiction("adapter.layers_to_transform adapter.target_modules", why, "Give target_modules as a list.")


def _orthogonal(values: KnownValues) -> Iterator[ProfileFault]:
    ranks = (values("adapter.r"), *values("adapter.rank_pattern").values())
    if values("adapter.init_lora_weights") == "orthogonal" and any(r % 2 for r in ranks):
        keys = "adapter.init_lora_weights adapter.r adapter.rank_pattern"
        yield contradiction(keys, "orthogonal matrices need an even r", "Set r to an even number.")


CHECKS = (
    _one_source, _trusted_code, _scratch_shape, _scratch_is_whole, _stored_type, _keys_suit_method, _frozen_base, _bias,
    _which_layers, _orthogonal,
)  # fmt: skip
