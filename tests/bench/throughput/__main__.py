"""Tokens per second, memory and start of ftui beside transformers' Trainer, TRL, LLaMA-Factory and LitGPT.

    python -m tests.bench.throughput [--write docs/benchmarks.md] [--python llamafactory=PATH litgpt=PATH]
        [--pairs FILE] [--only lora full/ftui_best ...] [--rounds 3] [--minutes 25] [--json FILE] [--quick]

From the top of the repository, on a quiet machine; needs the extra `bench`. What each contestant trains, and with which
settings, is in contestants.py and on the page that this writes. Tools whose pins clash with ftui's are run by the
Python of an environment of their own; without --python they are left out, and the page says so. The results are kept in
a file after each training: the same command later adds the rounds that are missing, or with --rounds more of them
(give it the same --steps). Peers as they come take part in every second round only: they are the slowest.
--quick takes tiny models with random weights: whether everything works, no measurement.

It ends by comparing the losses: exit code 1 if those of a contestant are not those of the others.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.throughput import agreement, page
from tests.bench.throughput.contestants import ALL, TABLE
from tests.bench.throughput.materials import PAIRS, QUICKSTART, make_models
from tests.bench.throughput.session import Session

OWN_ENVIRONMENT = ("llamafactory", "litgpt")


def main() -> int:
    options = _parse()
    pythons = dict(text.split("=", 1) for text in options.python)
    pairs = options.pairs or (QUICKSTART / "pairs.jsonl" if options.quick else PAIRS)
    absent = {tool: "no environment was named with --python." for tool in OWN_ENVIRONMENT if tool not in pythons}
    if not pairs.exists():
        absent["dpo"] = "there is no file of pairs; name one with --pairs."
    cells = [cell for cell in _cells(options.only) if not {ALL[cell].tool, ALL[cell].method} & absent.keys()]
    with tempfile.TemporaryDirectory(prefix="ftui-bench-") as top:
        work = Path(top)
        models = make_models(work / "models", is_quick=options.quick, lit_gpt=pythons.get("litgpt"))
        session = Session(options.json, models, pythons, pairs, num_steps=options.steps, warm_up=1)
        session.load()
        session.run(cells, options.rounds, time.monotonic() + 60 * options.minutes, work)
        facts = page.read_facts(pythons, absent, is_quick=options.quick)
    text = page.page(session, facts)
    print(page.tables(session))
    if options.write:
        options.write.write_text(text)
    findings = agreement.compare(session.results)
    print("\n".join(finding.text for finding in findings))
    return int(any(not finding.agrees for finding in findings))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--python", nargs="+", default=[], metavar="TOOL=PATH")
    parser.add_argument("--pairs", type=Path, help=f"rows for dpo: prompt, chosen, rejected ({PAIRS.name})")
    parser.add_argument("--only", nargs="+", default=[], help="methods, tools or cells such as lora/ftui_best")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="steps measured, after one to warm up")
    parser.add_argument("--minutes", type=float, default=25.0, help="no training is begun after them")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="the results so far")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def _cells(only: list[str]) -> list[str]:
    if not only:
        return list(TABLE)
    chosen = [
        cell for cell, contestant in ALL.items()
        if cell in only or (cell in TABLE and {contestant.method, contestant.tool, contestant.name} & set(only))
    ]  # fmt: skip
    unknown = set(only) - {word for c in ALL.values() for word in (c.cell, c.method, c.tool, c.name)}
    if unknown:
        raise SystemExit(f"--only: there is no {', '.join(sorted(unknown))}. The cells: {', '.join(ALL)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
