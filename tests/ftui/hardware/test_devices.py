"""Cards by name and by what the driver calls them; prices, and whose go first."""

from itertools import permutations
from pathlib import Path

import pytest

from ftui.errors import ProfileError, UsageError
from ftui.hardware.devices import BY_NAME, CARDS, TIERS, TRAINED, MiB, card_for, find_card, price_of
from ftui.profile.tiers import SHIPPED
from ftui.system.user_folders import prices_file

TOLD = (
    ("NVIDIA GeForce RTX 4090", 24564, 89, "rtx4090"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, 89, None),
    ("NVIDIA GeForce RTX 4090 D", 24564, 89, None),
    ("NVIDIA GeForce RTX 3090", 24576, 86, "rtx3090"),
    ("NVIDIA GeForce RTX 3090 Ti", 24564, 86, None),
    ("NVIDIA GeForce RTX 5090", 32607, 120, "rtx5090"),
    ("NVIDIA A40", 46068, 86, "a40"),
    ("NVIDIA A40", 49140, 86, "a40"),  # ECC off
    ("NVIDIA A40-8Q", 8192, 86, None),  # a share of one
    ("NVIDIA A100-SXM4-40GB", 40960, 80, "a100-40"),
    ("NVIDIA A100 80GB PCIe", 81920, 80, "a100-80"),
    ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20096, 80, None),
    ("NVIDIA L4", 23034, 89, "l4"),
    ("NVIDIA L40", 46068, 89, None),
    ("NVIDIA L40S", 46068, 89, "l40s"),
    ("Tesla T4", 15360, 75, "t4"),
    ("NVIDIA H100 80GB HBM3", 81559, 90, "h100"),
    ("NVIDIA H100 PCIe", 81559, 90, None),  # it computes otherwise
    ("NVIDIA H200", 143771, 90, "h200"),
    ("NVIDIA A10G", 23028, 86, "a10g"),
    ("NVIDIA RTX A6000", 49140, 86, "a6000"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, 89, None),
    ("NVIDIA B200", 183359, 100, None),
)


@pytest.mark.parametrize(("title", "mebibytes", "capability", "name"), TOLD)
def test_a_card_is_known_by_its_title_and_memory(title: str, mebibytes: int, capability: int, name: str | None) -> None:
    card = card_for(title, mebibytes * MiB, capability)
    assert (card.title, card.memory, card.capability) == (title, mebibytes * MiB, capability)
    if name is None:
        assert card.name not in BY_NAME and card.tflops is card.bandwidth is card.price_per_hour is None
    else:
        assert card.name == name and card.bandwidth == BY_NAME[name].bandwidth


def test_a_title_without_memory_is_known_where_it_says_enough() -> None:
    assert card_for("NVIDIA A40", None, 0).memory == BY_NAME["a40"].memory
    assert card_for("NVIDIA A100-PCIE", None, 80).name not in BY_NAME, "40 or 80 GiB"
    for title, name in (
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA H100 80GB HBM3", "h100"),
    ):
        card = card_for(title, None, 0)
        assert (card.name, card.memory) == (name, BY_NAME[name].memory)


def test_memory_that_nothing_tells_is_unknown_and_no_figure() -> None:
    for title in ("NVIDIA GB10", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA H100 64GB"):
        card = card_for(title, None, 121)
        assert card.memory == 0 and card.name not in BY_NAME


def test_a_card_of_no_such_name_gets_the_nearest() -> None:
    assert find_card("RTX4090").name == "rtx4090"
    for wrong, near in (("rtx409", "rtx4090"), ("a100", "a100-40"), ("h10", "h100")):
        with pytest.raises(UsageError) as caught:
            find_card(wrong)
        assert near in caught.value.hint
    with pytest.raises(UsageError, match="no card 'zebra'"):
        find_card("zebra")


def test_figures_are_of_the_right_order() -> None:
    """A slip of a digit or a unit; the figures themselves are NVIDIA's."""
    for card in CARDS:
        assert 8 << 30 <= card.memory <= 200 << 30
        if card.kind == "cuda":
            assert 75 <= card.capability <= 120 and 300 <= (card.bandwidth or 300) <= 8000
            assert 60 <= (card.tflops or 60) <= 1000 and 100 * MiB < card.context < 600 * MiB
            assert all(0.1 < share < 0.8 for share in card.efficiency)
        assert card.price_per_hour is None or 0.1 < card.price_per_hour < 10
    assert [card.name for card in CARDS if card.kind == "cuda" and not card.has_bf16] == ["t4"]


# torch's bf16 products of 10240 square matrices (L4, A40, RTX 5090), else of the best size, in 1e12 a second, as people
# measured them (zzc0721/torch-performance-test-data).
MEASURED_PRODUCTS = {
    "rtx3090": 76.5, "rtx4090": 165, "a100-80": 265, "l4": 56.9, "a40": 122.3, "a6000": 123.3, "l40s": 269,
    "rtx5090": 237,
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED_PRODUCTS)
def test_training_reaches_a_share_of_measured_products(name: str) -> None:
    """One rule for all cards, those with published runs among them: no card trains as fast as it multiplies."""
    card = BY_NAME[name]
    assert card.tflops is not None
    trained, measured = card.tflops * card.efficiency[0], MEASURED_PRODUCTS[name]
    assert trained == pytest.approx(TRAINED * measured, rel=0.05)
    assert card.tflops * max(card.efficiency) < 0.7 * measured


def test_a_card_that_multiplies_and_moves_less_is_never_told_as_faster() -> None:
    """A card of 72 W was told to be faster than one of 350 W, by what its data sheet says."""
    for one, other in permutations(MEASURED_PRODUCTS, 2):
        slow, fast = BY_NAME[one], BY_NAME[other]
        assert slow.tflops and fast.tflops and slow.bandwidth and fast.bandwidth
        if 1.1 * MEASURED_PRODUCTS[one] < MEASURED_PRODUCTS[other] and slow.bandwidth < fast.bandwidth:
            assert slow.tflops * slow.efficiency[0] < fast.tflops * fast.efficiency[0], (one, other)


def test_each_tier_is_that_of_a_card() -> None:
    assert sorted(TIERS) == sorted(path.stem for path in SHIPPED.glob("*.toml"))
    assert set(TIERS) <= BY_NAME.keys()


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    prices_file().parent.mkdir()
    return prices_file()


def test_the_profiles_price_goes_before_the_users_and_that_before_the_cards(prices: Path) -> None:
    card, other = BY_NAME["rtx4090"], BY_NAME["a40"]
    assert (price_of(card), price_of(other)) == (card.price_per_hour, None)
    prices.write_text("rtx4090 = 1\na40 = 0.39\n")
    assert (price_of(card), price_of(other), price_of(card, 0.0)) == (1.0, 0.39, 0.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rtx409 = 1", "rtx409: there is no such card"),
        ("a40 = '0.4'", "a40: dollars an hour, 0 or more, not '0.4'"),
        ("a40 = -1", "not -1"),
        ("a40 = nan", "not nan"),
        ("a40 = true", "not True"),
        ("a40 =", "cannot be read as a table of prices"),
        ("[a40]\nprice = 1", "not {'price': 1}"),
    ],
)
def test_what_is_wrong_with_the_prices_is_told_by_name(prices: Path, text: str, words: str) -> None:
    prices.write_text(text)
    with pytest.raises(ProfileError) as caught:
        price_of(BY_NAME["a40"])
    assert words in caught.value.message and str(prices) in caught.value.message
