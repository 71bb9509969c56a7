"""`ftui split`: what is alike stays on one side, every row is in one of the files, byte for byte."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from ftui.cli.main import main
from ftui.cli.split import lines, wish_for
from ftui.dataset.split import SplitResult
from ftui.engine.data.facts.near_duplicates import group_by_pairs, likely_pairs
from ftui.engine.data.holdout import choose_holdout
from ftui.engine.data.sources import ResolvedSource
from ftui.engine.data.stores.cache import ReadOptions, load_store
from ftui.engine.data.stores.sequences import Sequences, cut_to_length, join_sources
from ftui.engine.data.tokens.encode import Encoder
from ftui.engine.services import split_rows as engine_split
from ftui.engine.services.split_rows import split_file as split_here
from ftui.errors import DataError, UsageError
from tests.support.tiny import TEXT, Rows, chats, make_tokenizer, write_rows

WORDS = TEXT.split()


def said(question: str, answer: str) -> dict[str, Any]:
    return {"prompt": question, "completion": answer}


def texts(number: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) for _ in range(40)) for _ in range(number)]


def families() -> tuple[Rows, list[int]]:
    """Rows, and for each the number of its kin: some come twice, some changed a little, some ask the same again."""
    rows, of = [], []
    for number, text in enumerate(texts(120)):
        kin = [said(f"ask {number}", text)]
        if number % 6 == 0:
            kin.append(said(f"ask {number}", text))
        elif number % 6 == 1:
            kin.append(said(f"ask {number} please", f"{text} now"))
        elif number % 6 == 2:
            kin.append(said(f"ask {number}", "something else"))
        rows += kin
        of += [number] * len(kin)
    order = random.Random(2).sample(range(len(rows)), len(rows))
    return [rows[place] for place in order], [of[place] for place in order]


def split(file: Path, how_many: str, **options: Any) -> tuple[SplitResult, list[bytes], list[bytes]]:
    done = split_here(wish_for(file, how_many, **options))
    return done, Path(done.train).read_bytes().splitlines(True), Path(done.eval).read_bytes().splitlines(True)


def test_rows_that_belong_together_stay_together(tmp_path: Path) -> None:
    rows, family = families()
    file = write_rows(tmp_path / "rows.jsonl", rows)
    done, train, apart = split(file, "20%")
    whole = file.read_bytes().splitlines(True)
    assert done.num_eval_rows == len(apart) == done.num_wanted == round(0.2 * len(rows))
    assert sorted(train + apart) == sorted(whole)
    for part in (train, apart):
        remaining = iter(whole)
        assert all(line in remaining for line in part), "in their order"
    sides: dict[int, set[bool]] = {}
    for row, number in zip(whole, family, strict=True):
        sides.setdefault(number, set()).add(row in apart)
    assert all(len(side) == 1 for side in sides.values())
    assert (done.num_same, done.num_similar, done.num_asking_same) == (20, 20, 20)
    assert lines(done)[2] == (
        "Kept on one side: rows that belong together (20 say what another one says, 20 nearly so, 20 ask the same)."
    )


def test_it_is_the_same_each_time_and_another_with_another_seed(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", families()[0])
    first, again = (split(file, "25", out=tmp_path / name)[2] for name in "ab")
    assert first == again and len(first) == 25
    assert split(file, "25", seed=1, out=tmp_path / "c")[2] != first
    moved = tmp_path / "other.jsonl"
    moved.write_bytes(file.read_bytes())
    assert split(moved, "25")[2] == first, "whatever it is called"


def test_lines_stay_as_they_are_and_other_files_become_json(tmp_path: Path) -> None:
    odd = b'{ "text" :  "caf\\u00e9 \xe2\x80\xa8 1.50", "n": 1e3 }\n'
    file = tmp_path / "rows.jsonl"
    file.write_bytes(odd + b'\n{"text": "another thing"}\n{"text": "the last one"}')
    done, train, apart = split(file, "1")
    assert odd in train + apart and len(train + apart) == 3
    table = tmp_path / "table.csv"
    table.write_text('prompt,completion\n"a, b","c\nd"\ne,f\ng,h\n')
    done, train, apart = split(table, "1")
    assert Path(done.train).name == "table.train.jsonl"
    found = [json.loads(line) for line in train + apart]
    assert sorted(found, key=str) == [said("a, b", "c\nd"), said("e", "f"), said("g", "h")]


def test_a_list_of_rows_becomes_a_line_each_however_it_is_written(tmp_path: Path) -> None:
    """Indented, with ends of lines of other systems, or many rows on a line; strings stay as they are."""
    rows = [
        said(f"ask {n}\n\n  more", f'{text}: "\\n", [1 ,  2]\r\n{{}}') | {"n": [n, {"a": None}]}
        for n, text in enumerate(texts(9))
    ]
    for number, indent in enumerate((None, 0, 2, "\t")):
        for end in ("\n", "\r\n", "\r"):
            file = tmp_path / f"{number}{len(end)}{ord(end[0])}.json"
            file.write_bytes(json.dumps(rows, indent=indent).replace("\n", end).encode())
            _, train, apart = split(file, "3")
            assert len(apart) == 3 and len(train) == 6
            assert sorted(map(json.loads, train + apart), key=lambda row: row["n"][0]) == rows


def test_the_same_answer_is_not_on_both_sides_because_the_system_says_more(tmp_path: Path) -> None:
    """As a check of the two files would find (`leaked_rows`)."""
    rules = [{"role": "system", "content": "be brief"}]
    asked = [
        [{"role": "user", "content": f"Ask {n}"}, {"role": "assistant", "content": text}]
        for n, text in enumerate(texts(40))
    ]
    rows = [{"messages": turns} for turns in asked] + [{"messages": [*rules, *turns]} for turns in asked]
    _, train, apart = split(write_rows(tmp_path / "rows.jsonl", rows), "25%")
    assert len(apart) == 20
    known = {json.loads(line)["messages"][-1]["content"] for line in train}
    assert known.isdisjoint(json.loads(line)["messages"][-1]["content"] for line in apart)


def test_one_question_for_all_is_no_reason_to_keep_them_together(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [said("Translate:", text) for text in texts(30)])
    done, _, apart = split(file, "10%")
    assert len(apart) == 3 and done.are_asks_parted
    assert "29 rows that ask the same are on both sides" in lines(done)[-1]


@pytest.mark.parametrize("form", ["preference", "kto"])
def test_all_answers_to_a_prompt_stay_together(form: str, tmp_path: Path) -> None:
    """Of pairs and of answers with a verdict, as the report on them advises."""
    answers = texts(200)
    rows: Rows = [{"prompt": f"why {n % 40}", "chosen": text, "rejected": text[::-1]} for n, text in enumerate(answers)]
    if form == "kto":
        rows = [{"prompt": f"why {n % 40}", "completion": text, "label": n % 3 > 0} for n, text in enumerate(answers)]
    done, train, apart = split(write_rows(tmp_path / "rows.jsonl", rows), "10%")
    asked, asked_apart = ({json.loads(line)["prompt"] for line in side} for side in (train, apart))
    assert done.num_eval_rows == 20 and not asked & asked_apart and not done.are_asks_parted


def test_rows_of_no_known_form_are_split_all_the_same(tmp_path: Path) -> None:
    rows = [{"frage": text, "antwort": text[:9], "n": n} for n, text in enumerate(texts(20) * 2)]
    _, train, apart = split(write_rows(tmp_path / "rows.jsonl", rows), "25%")
    assert len(apart) == 10
    assert {json.loads(line)["frage"] for line in train}.isdisjoint(json.loads(line)["frage"] for line in apart)


def test_copies_of_one_row_cannot_be_split(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [said("a", "b")] * 10)
    with pytest.raises(DataError, match="too many rows belong together"):
        split(file, "30%")
    with pytest.raises(DataError, match="has 10 rows, and 10 are to be set aside"):
        split(file, "10")


def test_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"text": "a"}\n{"text": \n')
    with pytest.raises(DataError, match=r"rows.jsonl:2"):
        split(file, "50%")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own; nothing is overwritten unless it is said to be."""
    file = write_rows(tmp_path / "rows.jsonl", families()[0])
    assert main(["split", str(file), "--eval", "10%", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["num_eval_rows"], told["eval"]) == (18, str(tmp_path / "rows.eval.jsonl"))
    before = (tmp_path / "rows.eval.jsonl").read_bytes()
    assert main(["split", str(file), "--eval", "10%", "--seed", "7"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "rows.eval.jsonl").read_bytes() == before
    assert main(["split", str(file), "--eval", "10%", "--seed", "7", "--force"]) == 0
    assert (tmp_path / "rows.eval.jsonl").read_bytes() != before
    assert main(["split", str(tmp_path / "none.jsonl"), "--eval", "10%"]) == 2
    file.write_bytes(b"{\n")
    assert main(["split", str(file), "--eval", "1", "--force"]) == 31


@pytest.mark.parametrize("amount", ["0", "0%", "100%", "1.5", "-3", "ten", "10 %", "", "²"])
def test_amounts_that_mean_nothing(amount: str, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [said("a", "b")])
    with pytest.raises(UsageError):
        wish_for(file, amount)


def test_amounts() -> None:
    wished = [wish_for(Path(__file__), text) for text in ("10%", "0.25", ".5", "7", "2.5%")]
    assert [(wish.fraction, wish.num_rows) for wish in wished] == [
        (0.1, None), (0.25, None), (0.5, None), (None, 7), (0.025, None),
    ]  # fmt: skip


def test_no_training_library_is_loaded() -> None:
    heavy = "[m for m in ('torch', 'transformers', 'datasets') if m in sys.modules]"
    code = f"import sys, ftui.engine.services.split_rows; print({heavy})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# held_out: the same, for what a run sets aside by itself


def sequences(folder: Path, sources: Sequence[Rows]) -> Sequences:
    tokenizer = make_tokenizer()
    encoder = Encoder(tokenizer, "sft", frozenset(["<|im_end|>"]))
    parts = []
    for number, rows in enumerate(sources):
        path = write_rows(folder / f"{number}.jsonl", rows)
        store = load_store(
            ResolvedSource("x", (path,), "auto"), encoder, folder / "cache", lambda detail: None, ReadOptions()
        )
        parts.append(cut_to_length(store, "sft", 256))
    return join_sources(parts)


def test_without_copies_rows_are_set_aside_by_the_seed_alone(tmp_path: Path) -> None:
    """As they were before copies were looked for."""
    data = sequences(tmp_path, [chats(40), [said(text, "b") for text in texts(30)]])
    random = np.random.default_rng([3, 0xE7A1])
    expected = [np.sort(random.permutation(40)[:8]), 40 + np.sort(random.permutation(30)[:6])]
    apart = choose_holdout(data, fraction=0.2, num_rows=None, seed=3)
    assert data.rows[apart].tolist() == np.concatenate(expected).tolist()
    random = np.random.default_rng([3, 0xE7A1])
    apart = choose_holdout(data, fraction=None, num_rows=9, seed=3)
    assert data.rows[apart].tolist() == np.sort(random.permutation(70)[:9]).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_copies_go_to_one_side_also_over_sources(seed: int, tmp_path: Path) -> None:
    rows, family = families()
    kin = [[place for place, of in enumerate(family) if of == number] for number in range(120)]
    together = [places for number, places in enumerate(kin) if number % 6 != 2]  # equal questions may be parted
    data = sequences(tmp_path, [rows[:90], rows[90:]])
    for options in ({"fraction": 0.2, "num_rows": None}, {"fraction": None, "num_rows": 30}):
        apart = choose_holdout(data, seed=seed, **options)
        assert all(len(set(apart[places].tolist())) == 1 for places in together)
        wanted = round(0.2 * 90) + round(0.2 * (len(rows) - 90)) if options["fraction"] else 30
        assert apart.sum() == wanted


def test_likely_pairs_and_groups() -> None:
    bands = np.random.default_rng(1).integers(1, 2**63, (5, 8), dtype=np.uint64)
    bands[3, :7] = bands[0, :7]
    bands[4] = 0
    assert likely_pairs(bands).tolist() == [[0, 3]]
    bands[3, 5:] = bands[2, 5:]
    assert likely_pairs(bands).tolist() == [], "bands in common, and too few of all hashes"
    assert likely_pairs(bands[4:]).tolist() == [] and likely_pairs(bands[:0]).tolist() == []
    chain = np.array([[7, 8], [3, 4], [2, 3], [4, 5]])
    assert group_by_pairs(9, chain).tolist() == [0, 1, 2, 2, 2, 2, 6, 7, 7]


def test_numbers_of_a_table_that_are_none_are_null(tmp_path: Path) -> None:
    """What is written is JSON for every reader."""
    table = {"prompt": texts(30), "completion": texts(30, 2), "score": [float("nan"), 0.5, float("inf")] * 10}
    parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet")
    _, train, evaluation = split(tmp_path / "rows.parquet", "5")
    scores = [msgspec.json.decode(line)["score"] for line in (*train, *evaluation)]
    assert (scores.count(None), scores.count(0.5)) == (20, 10)


def test_a_file_that_grows_while_it_is_read_is_not_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [said(f"ask {number}", text) for number, text in enumerate(texts(30))])
    write = engine_split._write

    def late(source: Path, *others: Any) -> None:
        source.write_bytes(source.read_bytes() + b'{"prompt": "and", "completion": "more"}\n')
        write(source, *others)

    monkeypatch.setattr(engine_split, "_write", late)
    with pytest.raises(DataError, match=r"rows\.jsonl has changed while it was read"):
        split(rows, "5")
    assert list(tmp_path.iterdir()) == [rows]


@pytest.mark.slow
def test_what_goes_wrong_is_told_as_this_command_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes("すべての人間は生まれながらにして自由である。".encode("cp932") * 9)
    assert main(["split", str(path), "--eval", "10%"]) == 31
    told = capsys.readouterr().err
    assert "--encoding cp932" in told and "data.encoding" not in told
    path.write_text(TEXT)
    assert main(["split", str(path), "--eval", "10%"]) == 31
    assert "one row, which cannot be parted" in (told := capsys.readouterr().err) and "data.eval_fraction" in told
    table = tmp_path / "dataset_info.json"
    table.write_text('{"far": {"hf_hub_url": "a/b"}, "near": {"file_name": "rows.txt"}}')
    assert main(["split", str(table), "--eval", "10%"]) == 31
    assert (
        f"ftui split {path} --eval 10%" in (told := " ".join(capsys.readouterr().err.split())) and "subset" not in told
    )
    rows = write_rows(tmp_path / "bad.jsonl", chats(3))
    rows.write_text(rows.read_text() + '{"a": nothing}\n')
    assert main(["split", str(rows), "--eval", "1"]) == 31
    assert "Mend or delete that row." in (told := capsys.readouterr().err) and "on_bad_row" not in told
    done = SplitResult(
        train="/a", eval="/b", num_train_rows=1000, num_eval_rows=9, num_wanted=9, num_same=0, num_similar=0,
        num_asking_same=0,
    )  # fmt: skip
    assert [line.index("/") for line in lines(done)] == [27, 27]
