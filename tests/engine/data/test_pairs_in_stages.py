"""Pairs in the stages that compare answers: two verdicts each in stage kto, and cut at one place on both sides."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ftui.engine.data.load_rows import LoadedData, load_data
from ftui.engine.data.mismatched import mismatch
from ftui.engine.inspection.browser import view_row
from ftui.engine.inspection.report import make_report
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.schema import Profile
from ftui.profile.serialize import to_toml
from ftui.system.user_folders import cache_folder
from tests.support.tiny import chats, judged_answers, make_profile, preference_pairs, write_rows


def loaded(profile: Profile) -> LoadedData:
    return load_data(profile, cache_folder(Path()), lambda detail: None, weights=False)


def test_stage_kto_takes_a_pair_for_two_verdicts_and_says_so(model_folder: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "pairs.jsonl", preference_pairs(8))
    profile = make_profile(model_folder, rows, run={"stage": "kto"})
    data = loaded(profile)
    (store,) = data.stores
    assert store.labels.tolist() == [1, -1] * 8 and store.rows.tolist() == np.repeat(np.arange(8), 2).tolist()
    assert store.counts.forms == ["preference"]
    report = make_report(data, profile)
    assert report.sources[0].form == (
        "preference: each pair is two answers, the chosen one judged good and the rejected one bad"
    )
    assert (report.num_train_rows, report.num_sequences) == (8, 16)
    views = [view_row(to_toml(profile), "number", lambda detail: None, number=3, part=part) for part in range(2)]
    assert [view.verdict for view in views] == [
        "judged good: the chosen answer of a pair", "judged bad: the rejected answer of a pair",
    ]  # fmt: skip


def test_pairs_and_verdicts_may_be_mixed_by_file(model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write_rows(folder / "a.jsonl", preference_pairs(3))
    write_rows(folder / "b.jsonl", judged_answers(4))
    data = loaded(make_profile(model_folder, folder, run={"stage": "kto"}))
    assert data.stores[0].counts.forms == ["preference", "kto"]
    assert Counter(data.stores[0].labels.tolist()) == {1: 3 + 2, -1: 3 + 2}
    write_rows(folder / "b.jsonl", chats(4))
    with pytest.raises(DataError, match="no verdict"):
        loaded(make_profile(model_folder, folder, run={"stage": "kto"}))


def test_a_partner_is_never_the_other_answer_of_its_own_pair(model_folder: Path, tmp_path: Path) -> None:
    """Rows of one answer beside pairs; where every row has one, partners are those that they have always been."""
    folder = tmp_path / "rows"
    write_rows(folder / "a.jsonl", preference_pairs(9))
    write_rows(folder / "b.jsonl", judged_answers(5))
    profile = make_profile(model_folder, folder, run={"stage": "kto"}, data={"eval_num_rows": 3})
    data = prepare(profile, tmp_path / "cache", lambda detail: None)
    for split in (data.train, data.evaluation):
        assert split is not None and split.mismatched is not None
        sequences = split.mismatched.sequences
        partners, rows = sequences.partners[split.indices], split.sequences.rows  # type: ignore[attr-defined]
        assert (rows[partners] != rows[split.indices]).all()
        assert sorted(partners.tolist()) == split.indices.tolist()
    alone = loaded(make_profile(model_folder, folder / "b.jsonl", run={"stage": "kto"})).train.sequences
    indices = np.arange(len(alone))
    order = np.random.default_rng([7, 0x4B54]).permutation(len(indices))
    expected = np.empty_like(order)
    expected[order] = np.roll(order, -1)
    assert mismatch(alone, indices, 256, 7).partners.tolist() == expected.tolist()


def test_both_answers_of_a_pair_are_cut_at_the_same_place_and_the_view_says_so(
    model_folder: Path, tmp_path: Path
) -> None:
    texts = [("so", "no"), ("so " * 60, "no"), ("so", "no " * 90)]
    pairs = [{"question": "why?", "chosen": chosen, "rejected": rejected} for chosen, rejected in texts]
    pairs.append({"question": "why? " * 60, "chosen": "so", "rejected": "no"})
    profile = make_profile(
        model_folder, write_rows(tmp_path / "pairs.jsonl", pairs), run={"stage": "dpo"}, data={"max_length": 48}
    )
    data = loaded(profile)
    assert data.train.sequences.rows.tolist() == [0, 0, 1, 1, 2, 2]  # of the last pair no answer is left
    sizes = data.stores[0].lengths.tolist()
    assert data.train.sequences.lengths.tolist() == [min(48, size) for size in sizes[:6]]
    for number in range(4):
        views = [view_row(to_toml(profile), "number", lambda detail: None, number=number, part=p) for p in range(2)]
        notes = [[note for note in view.notes if "cuts both" in note or "left out: no" in note] for view in views]
        assert notes[0] == notes[1]
        chosen, rejected = (f"{max(0, size - 48)} of its {size} tokens" for size in sizes[2 * number : 2 * number + 2])
        cut = f"data.max_length = 48 cuts both answers at the same place: the chosen one loses {chosen}, "
        assert notes[0][:1] == ([f"{cut}the rejected one {rejected}."] if number else [])
        left_out = ["The pair is left out: no trained token of the chosen and the rejected answer is left."]
        assert notes[0][1:] == (left_out if number == 3 else [])
