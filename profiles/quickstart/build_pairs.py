"""Make the rows of the preference recipes from instructions.jsonl, beside this file: python build_pairs.py."""

import json
from pathlib import Path

HERE = Path(__file__).parent
NUM_ROWS = 400
MOST_CHARS = 240


def main() -> None:
    """Short answers as the Jargon File has them, and shouted: the quiet ones are to be preferred."""
    rows = [json.loads(line)["messages"] for line in (HERE / "instructions.jsonl").read_text().splitlines()]
    short = [(question, answer) for question, answer in rows if len(answer["content"]) <= MOST_CHARS][:NUM_ROWS]
    pairs, verdicts = [], []
    for number, (question, answer) in enumerate(short):
        shouted = answer | {"content": answer["content"].upper()}
        pairs.append({"prompt": [question], "chosen": [answer], "rejected": [shouted]})
        is_good = number % 2 == 0
        verdicts.append({"prompt": [question], "completion": [answer if is_good else shouted], "label": is_good})
    for name, made in (("pairs", pairs), ("verdicts", verdicts)):
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))


if __name__ == "__main__":
    main()
