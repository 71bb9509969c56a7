"""The cards ftui knows: their memory, what they compute, what an hour costs. Figures with their sources.

Memory is the total that nvidia-smi shows (with ECC on where the card has it). Products are NVIDIA's dense figures with
float32 sums, half of those "with sparsity"; where a data sheet gives none, SMs x boost clock x operations per SM and
cycle. An unknown figure is `None`.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ftui.errors import ProfileError, UsageError
from ftui.system.user_folders import prices_file

GiB = 1 << 30
MiB = 1 << 20

# Bytes that a process holds besides torch's allocator. Measured: T4 141 MiB (fitcheck-llm 0.3.1's rows, torch 2.10 to
# 2.14), RTX 3090 256 MiB (InvokeAI issue 9413, torch 2.7). All others: "around 300 MB" since CUDA loads its kernels one
# by one (pytorch issue 107667, 2023), not measured by us; a first run on the card shows the true one.
T4_CONTEXT, RTX3090_CONTEXT, CONTEXT = 141 * MiB, 256 * MiB, 300 * MiB


@dataclass(frozen=True)
class Card:
    """One kind of accelerator (or the CPU), or one that was found in this machine.

    Attributes:
        name: what a tier is called: `rtx4090`, `a100-80`, `mps`, `cpu`.
        title: what its maker calls it.
        memory: bytes, as the driver gives them (for the CPU: of RAM this process may use). 0: unknown, where the driver
            hides them (memory that a GB10 or a Jetson shares with its CPU); never to be compared with as if it were 0.
        capability: compute capability of an NVIDIA card times ten (89), else 0.
        tflops: dense matrix products a second in bf16 (fp16 before Ampere) with float32 sums, in 1e12; `None`: to be
            measured.
        bandwidth: of its memory, in 1e9 bytes a second; `None`: to be measured.
        context: bytes that the driver and the libraries hold in a process besides torch's allocator.
        efficiency: share of `tflops` that training reaches, of LoRA methods and of full ones.
        price_per_hour: US dollars on a rented pod, for one; `None` where nobody rents it.
        pcie: to the host and back, each way at once, in 1e9 bytes a second: what the standard says of its 16 lanes.
        nvlink: to other cards of the kind, each way, in 1e9 bytes a second; `None`: they speak over PCIe.
    """

    name: str
    title: str
    kind: Literal["cuda", "mps", "cpu"]
    memory: int
    capability: int = 0
    tflops: float | None = None
    bandwidth: float | None = None
    context: int = 0
    efficiency: tuple[float, float] = (0.5, 0.5)
    price_per_hour: float | None = None
    pcie: float = 32
    nvlink: float | None = None

    @property
    def has_bf16(self) -> bool:
        """Whether `precision = "auto"` is bf16 there (engine/system/device.py)."""
        return self.kind == "cuda" and self.capability >= 80


# Efficiencies are shares of `tflops` reached in published runs, recomputed ones included (T4: fitcheck-llm; A100: Qwen
# and torchtune; 3090 and 4090: Answer.AI's fsdp_qlora; H100: torchtitan). The H200 computes as the H100 does. A10: 43 %
# of full training (modula pull request 1). Of the L4, A40, A6000, L40S and RTX 5090 no run was found: theirs is
# TRAINED of what torch's products of the largest bf16 matrices (10240 square, so that a power limit shows; else the
# best) were measured to be. Those are people's measurements in zzc0721/torch-performance-test-data: L4 57 (issue 120;
# 72 W hold it at less than half of what the sheet says), A40 122 (185), A6000 123, L40S 269, RTX 5090 237 (124).
# Prices are RunPod's lowest for a pod, March 2026 (deploybase.ai/articles/runpod-gpu-pricing); they change by the week,
# so that `hardware.price_per_hour` and a table of one's own go before them. None was found for the others.
# PCIe: 32e9 bytes a second each way with 16 lanes of version 4, half of it with 3 (T4), twice with 5 (RTX 5090, H100,
# H200). NVLink is only counted where all cards of a kind have it: half of the 900e9 that NVIDIA gives for both ways.
TRAINED = 0.58
"""Of measured products, in training: RTX 3090 0.56 of 76.5, RTX 4090 0.57 of 165, A100 0.59 of 265 (LoRA)."""
CARDS: tuple[Card, ...] = (
    # 24564 MiB: nvidia-smi (RLinf issue 255). 165.2 (FP16 with FP32 sums) and 1008: NVIDIA's Ada white paper.
    Card("rtx4090", "NVIDIA GeForce RTX 4090", "cuda", 24564 * MiB, 89, 165.2, 1008, CONTEXT, (0.57, 0.57), 0.34),
    # 46068 MiB: nvidia-smi (OCRFlux issue 64). 149.7 and 696: NVIDIA's A40 data sheet.
    Card("a40", "NVIDIA A40", "cuda", 46068 * MiB, 86, 149.7, 696, CONTEXT, (0.47, 0.47)),
    # 40960 MiB: nvidia-smi (modal-client pull request 2797). 312 and 1555: NVIDIA's A100 data sheet.
    Card("a100-40", "NVIDIA A100 40GB", "cuda", 40960 * MiB, 80, 312, 1555, CONTEXT, (0.5, 0.55)),
    # 81920 MiB: as above. 312; 1935 is the PCIe card's (SXM: 2039): NVIDIA's A100 data sheet.
    Card("a100-80", "NVIDIA A100 80GB", "cuda", 81920 * MiB, 80, 312, 1935, CONTEXT, (0.5, 0.55), 1.19),
    # What a machine with 16 GiB gives; `find_machine` finds the real one. Products and bandwidth are to be measured.
    Card("mps", "Apple GPU (MPS)", "mps", 16 * GiB * 2 // 3),
    Card("cpu", "CPU", "cpu", 16 * GiB),
    # 24576 MiB: nvidia-smi (club-3090 issue 390). 82 SMs x 1.695 GHz x 512 = 71.2; 936: GA102 white paper.
    Card("rtx3090", "NVIDIA GeForce RTX 3090", "cuda", 24576 * MiB, 86, 71.2, 936, RTX3090_CONTEXT, (0.6, 0.6), 0.22),
    # 32607 MiB: nvidia-smi (club-3090 issue 617). 838.4 is sparse and with FP16 sums: a quarter; 1792: NVIDIA.
    Card("rtx5090", "NVIDIA GeForce RTX 5090", "cuda", 32607 * MiB, 120, 209.5, 1792, CONTEXT, (0.66, 0.66), 0.69, 64),
    # 23034 MiB: modal-client pull request 2797. Half of 242, and 300: NVIDIA's L4 data sheet.
    Card("l4", "NVIDIA L4", "cuda", 23034 * MiB, 89, 121, 300, CONTEXT, (0.27, 0.27), 0.44),
    # 46068 MiB: as above. 362.05 and 864: NVIDIA's L40S data sheet.
    Card("l40s", "NVIDIA L40S", "cuda", 46068 * MiB, 89, 362, 864, CONTEXT, (0.43, 0.43), 0.79),
    # 15360 MiB: as above. 65 (fp16) and 320: NVIDIA's T4 data sheet.
    Card("t4", "NVIDIA T4", "cuda", 15360 * MiB, 75, 65, 320, T4_CONTEXT, (0.18, 0.18), None, 16),
    # 81559 MiB: as above. 989.4 and 3350: NVIDIA's H100 data sheet, the SXM card's.
    Card("h100", "NVIDIA H100 80GB", "cuda", 81559 * MiB, 90, 989, 3350, CONTEXT, (0.32, 0.35), 2.69, 64, 450),
    # 143771 MiB: published nvidia-smi output. 989 and 4800: NVIDIA's H200 data sheet.
    Card("h200", "NVIDIA H200", "cuda", 143771 * MiB, 90, 989, 4800, CONTEXT, (0.32, 0.35), 3.59, 64, 450),
    # 23028 MiB: modal-client pull request 2797. 72 SMs x 1.695 GHz x 1024 = 125; 600: NVIDIA's A10 data sheet.
    Card("a10", "NVIDIA A10", "cuda", 23028 * MiB, 86, 125, 600, CONTEXT, (0.43, 0.43)),
    # AWS's own A10: the same memory (baseten.co), other cores, of which NVIDIA publishes no products.
    Card("a10g", "NVIDIA A10G", "cuda", 23028 * MiB, 86, None, 600, CONTEXT, (0.5, 0.5)),
    # 49140 MiB: published nvidia-smi output, ECC off. 84 SMs x 1.8 GHz x 1024 = 154.8; 768: NVIDIA's data sheet.
    Card("a6000", "NVIDIA RTX A6000", "cuda", 49140 * MiB, 86, 154.8, 768, CONTEXT, (0.46, 0.46)),
)
BY_NAME = {card.name: card for card in CARDS}
TIERS = tuple(card.name for card in CARDS[:13])  # those with a tier of their own (profiles/tiers)
# What the driver's titles say of the kind: `NVIDIA A100-SXM4-40GB`, `NVIDIA H100 80GB HBM3`. Variants that compute
# otherwise (Laptop, D, Ti, PCIe of the H100, NVL) are kinds of their own, which are not known.
KINDS = re.compile(r"(?:NVIDIA |Tesla )?(?:GeForce )?(RTX ?A?\d{4}|A\d+G?|L\d+S?|T4|H\d+)(?![\w])(.*)")
OTHER_KINDS = re.compile(r"laptop|max-q|\bti\b|super|\bd\b|ada|mig|nvl|vgpu|h100 pcie|grid", re.IGNORECASE)
IN_TITLE = re.compile(r"(?<![\d.])(\d+) ?GB\b")
NEAR = 0.08  # share of memory by which a card of a kind may differ: ECC on or off, what a hypervisor keeps


def find_card(name: str) -> Card:
    """The kind of card of that name.

    Raises:
        UsageError: there is none; the nearest names are given.
    """
    if (card := BY_NAME.get(name.lower())) is not None:
        return card
    raise UsageError(f"There is no card {name!r}.", hint=nearest_names(name, BY_NAME))


def nearest_names(name: str, names: Iterable[str]) -> str:
    """A hint with the names that begin like `name`, else those most like it, else all."""
    start, choices = name.lower(), list(names)
    near = [candidate for candidate in choices if candidate.startswith(start)]
    near = near or difflib.get_close_matches(start, choices, cutoff=0.5)
    return f"Did you mean {' or '.join(near)}?" if near and start else f"The names are {', '.join(choices)}."


def card_for(title: str, memory: int | None, capability: int) -> Card:
    """The card the driver calls `title`: of a known kind with its real memory, or one of which little is known.

    Args:
        memory: bytes, as the driver gives them; `None` where it hides them: then a known kind has its usual memory,
            which the title must name where there are several (`A100-SXM4-40GB`), and any other card 0, for unknown.
        capability: times ten; 0 where it is hidden.
    """
    if (kind := _kind(title, memory)) is not None:
        return replace(kind, title=title, memory=memory or kind.memory)
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower().removeprefix("nvidia ")).strip("-") or "gpu"
    return Card(slug, title, "cuda", memory or 0, capability, context=CONTEXT)


def _kind(title: str, memory: int | None) -> Card | None:
    match = KINDS.match(title)
    if match is None or OTHER_KINDS.search(title):
        return None
    family = match[1].lower().replace(" ", "").replace("rtxa", "a")
    kinds = [card for card in CARDS if card.name == family or card.name.startswith(f"{family}-")]
    if memory is None and (size := IN_TITLE.search(match[2])) is not None:
        memory = int(size[1]) * GiB
    fitting = [card for card in kinds if memory is None or abs(card.memory - memory) < NEAR * card.memory]
    return fitting[0] if len(fitting) == 1 else None


def own_prices() -> dict[str, float]:
    """Dollars an hour by the name of a card, from the user's table (a line each); nothing where there is none.

    Raises:
        ProfileError: the table cannot be read, or a line of it is wrong.
    """
    path = prices_file()
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(f"{path} cannot be read as a table of prices: {error}.") from error
    for name, price in table.items():
        if name not in BY_NAME:
            raise ProfileError(f"{path}: {name}: there is no such card", hint=nearest_names(name, BY_NAME))
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < float("inf"):
            raise ProfileError(
                f"{path}: {name}: dollars an hour, 0 or more, not {price!r}", hint=f"Write {name} = 0.44, say."
            )
    return {name: float(price) for name, price in table.items()}


def price_of(card: Card, from_profile: float | None = None) -> float | None:
    """Dollars an hour: the profile's, else those of the user's table, else the card's.

    Raises:
        ProfileError: the user's table is wrong.
    """
    return from_profile if from_profile is not None else own_prices().get(card.name, card.price_per_hour)
