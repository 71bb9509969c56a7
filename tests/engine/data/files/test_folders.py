"""A folder as a source: which of its files are rows, links, empty files, and names of any bytes."""

import json
import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftui.engine.data.files.blocks import read_blocks
from ftui.engine.data.files.folders import list_files
from ftui.engine.data.load_rows import load_data
from ftui.engine.data.sources import ResolvedSource, find_sources
from ftui.engine.data.stores.cache import ReadOptions, load_store
from ftui.engine.data.tokens.encode import Encoder, stop_texts
from ftui.engine.inspection import browser
from ftui.engine.inspection.report import make_report
from ftui.engine.training.prepare import prepare
from ftui.errors import DataError
from ftui.profile.sections.data import DataSection, DataSource
from ftui.profile.serialize import to_toml
from tests.support.data_rows import read_rows
from tests.support.tiny import MARKED, Rows, chats, make_profile, make_tokenizer, write_rows

KINDS = ("a.jsonl", "b.json", "c.csv", "d.tsv", "e.parquet", "f.jsonl.gz", "g.csv.zst")


def names(path: Path, *, rows_only: bool = False) -> tuple[list[str], tuple[str, ...]]:
    found = list_files(path, rows_only=rows_only)
    return [file.relative_to(path).as_posix() for file in found.files], found.notes


def touch(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    return folder


# -- text beside rows


@pytest.mark.parametrize("kind", KINDS)
def test_text_beside_rows_of_any_kind_is_left_out_and_told(kind: str, tmp_path: Path) -> None:
    touch(tmp_path, kind, "LICENSE.txt", "sub/requirements.TXT", "notes.txt.gz", "z.txt")
    files, (note,) = names(tmp_path, rows_only=True)
    assert files == [kind]
    assert "LICENSE.txt" in note and "requirements.TXT" in note and "1 more" in note and "not trained on" in note
    assert names(tmp_path)[0] == sorted([kind, "LICENSE.txt", "sub/requirements.TXT", "notes.txt.gz", "z.txt"])


def test_a_folder_of_text_alone_is_text(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b/c.txt", "README.md")
    assert names(tmp_path, rows_only=True) == (["a.txt", "b/c.txt"], ())


@pytest.mark.parametrize(
    ("stage", "form", "own", "taken"),
    [
        ("sft", "auto", None, 1), ("sft", "messages", None, 1), ("sft", "text", None, 2), ("sft", "auto", "text", 2),
        ("pretrain", "auto", None, 2),
    ],
)  # fmt: skip
def test_the_stage_and_the_form_say_whether_text_is_meant(
    stage: str, form: str, own: str | None, taken: int, tmp_path: Path
) -> None:
    touch(tmp_path, "rows.jsonl", "LICENSE.txt")
    source = DataSource.model_validate({"path": str(tmp_path), "format": own})
    section = DataSection.model_validate({"train": (source,), "eval": (source,), "format": form})
    for evaluation in (False, True):
        (found,) = find_sources(section, lambda detail: None, stage=stage, evaluation=evaluation)
        assert len(found.places) == taken and len(found.notes) == 2 - taken


def test_a_run_tells_what_it_left_out_of_a_folder(model_folder: Path, tmp_path: Path) -> None:
    """Whether it tokenises the rows or finds them."""
    write_rows(tmp_path / "data" / "rows.jsonl", chats(30))
    (tmp_path / "data" / "LICENSE.txt").write_text("Permission is hereby granted")
    touch(tmp_path / "data", "empty.jsonl", "x/none.csv")
    (tmp_path / "data" / "nowhere").symlink_to(tmp_path / "gone")
    for _ in range(2):
        found = prepare(make_profile(model_folder, tmp_path / "data"), tmp_path / "cache", lambda detail: None)
        told = "\n".join(found.warnings)
        assert "LICENSE.txt: text beside files of rows" in told and "nowhere: a link to nothing" in told
        assert "empty.jsonl" in told and "none.csv: no rows in it, passed over" in told
        assert found.train.num_rows == 30


# -- links


def test_links_are_followed_to_files_and_folders(tmp_path: Path) -> None:
    touch(tmp_path / "else", "one.jsonl", "deep/two.csv", "deep/.hidden/x.jsonl")
    touch(tmp_path / "blobs", "0123abcd")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "else", target_is_directory=True)
    (tmp_path / "data" / "train.jsonl").symlink_to(tmp_path / "blobs" / "0123abcd")  # as the hub's cache has it
    assert names(tmp_path / "data") == (["linked/deep/two.csv", "linked/one.jsonl", "train.jsonl"], ())
    (tmp_path / "also").symlink_to(tmp_path / "data")
    assert names(tmp_path / "also")[0] == ["linked/deep/two.csv", "linked/one.jsonl", "train.jsonl"]


@pytest.mark.parametrize("to", [".", "..", "../..", "sub", "sub/up"])
def test_links_in_circles_end(to: str, tmp_path: Path) -> None:
    """To the folder itself, to one that holds it (whose other files are not meant), to one that leads back."""
    data = touch(tmp_path / "top" / "data", "rows.jsonl", "sub/more.jsonl").resolve()
    touch(tmp_path, "outside.jsonl", "top/beside.jsonl")
    (data / "sub" / "up").symlink_to(data, target_is_directory=True)
    (data / "again").symlink_to(to, target_is_directory=True)
    files, (note,) = names(data)
    assert files == ["rows.jsonl", "sub/more.jsonl"]
    assert "again" in note and "sub/up" in note and "passed over" in note


def test_two_folders_that_lead_to_each_other(tmp_path: Path) -> None:
    data, other = touch(tmp_path / "data", "a/one.jsonl"), touch(tmp_path / "x" / "b", "two.jsonl")
    touch(tmp_path, "outside.jsonl", "x/outside.jsonl")
    (data / "a" / "there").symlink_to(other)
    for name, to in (("back", data / "a"), ("up", tmp_path), ("up2", other.parent)):
        (other / name).symlink_to(to)
        assert names(data)[0] == ["a/one.jsonl", "a/there/two.jsonl"]


def test_what_two_names_lead_to_is_read_once(tmp_path: Path) -> None:
    """`latest.jsonl` beside the file it leads to; the file's own name stays. Copies are files of their own."""
    touch(tmp_path, "rows-2.jsonl", "rows-1.jsonl", "copy.jsonl", "z/rows.csv")
    (tmp_path / "latest.jsonl").symlink_to("rows-2.jsonl")
    (tmp_path / "a").symlink_to("z", target_is_directory=True)
    files, (note,) = names(tmp_path)
    assert files == ["copy.jsonl", "rows-1.jsonl", "rows-2.jsonl", "z/rows.csv"]
    assert "latest.jsonl" in note and "/a" in note


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("to", ["gone", "self"])
def test_a_broken_link_to_rows_is_named(name: str, to: str, tmp_path: Path) -> None:
    """Rows that are meant and not there are no rows to go without."""
    touch(tmp_path, "rows.jsonl")
    broken = tmp_path / "sub" / name
    broken.parent.mkdir()
    broken.symlink_to(name if to == "self" else to)
    with pytest.raises(DataError, match="leads to nothing") as caught:
        list_files(tmp_path)
    assert str(broken) in caught.value.message and "Bring back" in caught.value.hint


def test_a_broken_link_of_no_known_kind_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "rows.jsonl")
    (tmp_path / "shard").symlink_to(tmp_path / "gone")
    assert names(tmp_path) == (["rows.jsonl"], (f"{tmp_path}/shard: a link to nothing, passed over",))


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "rows.jsonl", "closed/more.jsonl")
    there = Path.iterdir

    def refused(path: Path) -> object:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return there(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(DataError, match=r"closed cannot be read: Permission denied"):
        list_files(tmp_path)


@pytest.mark.parametrize("name", ["b.jsonl", "b.csv", "b.parquet", "deep/b.json.gz", "dataset_dict.json", "state.json"])
def test_a_fifo_in_a_folder_is_not_waited_for(name: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "a.arrow", name)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{Path(name).name}.* a FIFO, not a regular file"):
        list_files(tmp_path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet", "rows.txt.gz"])
def test_a_device_is_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    source = DataSource(path=str(tmp_path / name))
    with pytest.raises(DataError, match=f"{name}: a device, not a regular file"):
        find_sources(DataSection(train=(source,)), lambda detail: None)
    with pytest.raises(DataError, match=f"{name} cannot be read: .*a device, not a regular file"):
        list(read_blocks((tmp_path / name,)))


# -- empty files

ENCODER = Encoder(make_tokenizer(MARKED), "sft", stop_texts(make_tokenizer(MARKED), []))
BLANK = {
    "empty.jsonl": b"", "blank.jsonl": b"\n \n", "empty.json": b"", "none.json": b"[]", "empty.csv": b"",
    "header.csv": b"prompt,completion\n", "empty.tsv": b"", "empty.txt": b"", "blank.txt": b" \n\n",
    "empty.parquet": b"", "empty.jsonl.gz": b"", "empty.csv.zst": b"", "bom.jsonl": b"\xef\xbb\xbf",
}  # fmt: skip


@pytest.mark.parametrize("name", [*BLANK, "rows.parquet"])
def test_a_file_without_rows_is_passed_over_beside_others(name: str, tmp_path: Path) -> None:
    """First, in the middle and last; alone it is an error with a way on."""
    folder = tmp_path / "data"
    folder.mkdir()
    places = [folder / f"{number}-{name}" for number in (1, 3, 5)]
    for place in places:
        place.write_bytes(BLANK.get(name, b""))
        if name == "rows.parquet":
            pq.write_table(pa.table({"text": pa.array([], pa.string())}), place)
    full = [write_rows(folder / f"{number}.jsonl", chats(3)) for number in (2, 4)]
    store = load_store(ResolvedSource("x", list_files(folder).files, "auto"), ENCODER, tmp_path / "cache", print)
    assert store.counts.empty == [0, 2, 4] and store.counts.num_rows == 6
    assert store.facts["file"].tolist() == [1, 1, 1, 3, 3, 3]
    assert store.counts.form == "messages"
    for alone in ((places[0],), tuple(places)):
        with pytest.raises(DataError, match="There are no rows in") as caught:
            load_store(ResolvedSource("x", alone, "auto"), ENCODER, tmp_path / "cache", print)
        assert str(places[0]) in caught.value.message and caught.value.hint
    full[0].write_bytes(b"{\n")  # a file of bad rows is not one without rows
    found = ResolvedSource("x", list_files(folder).files, "auto")
    assert load_store(found, ENCODER, tmp_path / "cache", print, ReadOptions(skips=True)).counts.empty == [0, 2, 4]


# -- names that are no UTF-8


def rows_in(ending: str, rows: Rows) -> bytes:
    match ending:
        case "jsonl":
            return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        case "json":
            return json.dumps(rows).encode()
        case "csv":
            return b"prompt,completion\n" + b"q,a\n" * len(rows)
        case "txt":
            return b"the cache ran away"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "txt", "parquet"])
def test_any_bytes_may_be_a_name(ending: str, model_folder: Path, tmp_path: Path) -> None:
    """Rows, report, a row looked at and found: whatever is said of the file can be written down."""
    folder = tmp_path / "data"
    folder.mkdir()
    place = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9." + ending.encode()))
    place.write_bytes(rows_in(ending, [{"prompt": f"q{n}", "completion": f"a{n}"} for n in range(9)]))
    profile = make_profile(model_folder, folder)
    its = load_data(profile, tmp_path / "cache", lambda detail: None)
    shown = f"{folder}/caf\\xe9.{ending}"
    assert its.stores[0].counts.sources == [shown]
    details: list[str] = []
    text = to_toml(profile)
    sample = browser.view_row(text, "number", details.append, number=0)
    assert sample.where.file == shown
    again = browser.view_row(text, "number", details.append, where={"file": shown, "number": sample.where.number})
    assert again == sample
    assert browser.search_rows(text, "a", 0, details.append) is not None
    msgspec.json.encode([make_report(its, profile), sample, details])


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet", "jsonl.gz", "gone.jsonl"])
@pytest.mark.parametrize("num", [1, 2])
def test_faults_of_such_a_file_can_be_told(ending: str, num: int, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    place = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9." + ending.encode()))
    if not ending.startswith("gone"):
        place.write_bytes(b'{"text": 1}\n{"\n1,"2\n')
    with pytest.raises(DataError, match=r"caf\\xe9\.") as caught:
        load_store(
            ResolvedSource("x", (place,), "text"), ENCODER, tmp_path / "cache", print, ReadOptions(num_processes=num)
        )
    msgspec.json.encode([caught.value.message, caught.value.hint])
    with pytest.raises(DataError, match=r"caf\\xe9\.") as caught:
        list(read_rows(place))
    msgspec.json.encode([caught.value.message, caught.value.hint])
