"""Profiles and other tools' files that say more than fits in memory or in a life: refused by name, and soon."""

import time
from pathlib import Path

import pytest

from ftui.errors import ProfileError
from ftui.importers import import_file
from ftui.profile.layers import resolve

SECONDS = 20.0  # of the processor; each of these took minutes, or all memory, before it had a bound
HEAD = "base_model: o/m\nadapter: lora\n"
NINE = range(9)


def chain(first: str, link: str, times: int = 40) -> str:
    return "\n".join([HEAD + first, *(link.format(now=n, last=n - 1) for n in range(1, times))])


def aliases(start: str, opened: str, each: str, closed: str) -> str:
    links = (f"a{n}: &a{n} {opened}{','.join(each.format(j, n - 1) for j in NINE)}{closed}" for n in range(1, 12))
    return "\n".join([HEAD + f"a0: &a0 {start}", *links])


HOSTILE = {
    "laughs.yaml": aliases("[x,x,x]", "[", "*a{1}", "]"),
    "tables.yaml": aliases("{x: 1}", "{", "k{0}: *a{1}", "}"),
    "merged.yaml": aliases("{x: 1}", "{<<: [", "*a{1}", "]}"),
    "lists.yaml": chain("a0: [x, x]", "a{now}: ['${{a{last}}}', '${{a{last}}}', '${{a{last}}}']"),
    "texts.yaml": chain("a0: xxxxxxxx", "a{now}: '${{a{last}}}${{a{last}}}${{a{last}}}'"),
    "itself.yaml": HEAD + "a: &a [*a, *a]",
    "code.yaml": HEAD + "x: !!python/object/apply:os.system ['touch OWNED']",
    "deep.yaml": HEAD + "x: " + "[" * 20_000 + "]" * 20_000,
    "deep-tables.yaml": HEAD + "x: " + "{a: " * 20_000 + "1" + "}" * 20_000,
    "digits.yaml": HEAD + "lora_r: " + "9" * 100_000,
    "base-60.yaml": HEAD + "x: 1:" + "59:" * 20_000 + "0",
    "deep.json": '{"train_batch_size": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "itself.sh": "#!/bin/sh\n" + "A=$A$A$A$A;" * 5000 + "\naxolotl train $A",
    "fourfold.sh": "A0=aaaaaaaaaa\n" + "\n".join(f"A{n}=$A{n - 1}$A{n - 1}$A{n - 1}$A{n - 1}" for n in range(1, 30))
    + "\npython train.py --lr $A29",
    "dates.sh": "python train.py --learning_rate 2024-13-45 --deep " + "[" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_another_tool_would_choke_on_is_refused_soon(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(HOSTILE[name])
    begin = time.process_time()
    with pytest.raises(ProfileError, match=name):
        import_file(tmp_path / name, tmp_path)
    assert time.process_time() - begin < SECONDS
    assert not (tmp_path / "OWNED").exists()


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 20_000) + " = 1", "[" + " . ".join(["a"] * 20_000) + "]", "x = {" + ".".join(["a"] * 20_000)
        + " = 1}", "x = " + "[" * 20_000 + "]" * 20_000, "x = " + "{a = " * 20_000, "x = " + "9" * 500_000,
        "'" * 1_000_000, "a" * 1_000_000, "[[a]]\n" * 20_000,
    ],
    ids=["dotted", "table", "inline", "lists", "tables", "digits", "quotes", "word", "list of tables"],
)  # fmt: skip
def test_a_profile_that_is_none_is_refused_soon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    begin = time.process_time()
    with pytest.raises(ProfileError, match=r"p\.toml"):
        resolve(path)
    assert time.process_time() - begin < SECONDS


def test_a_key_of_many_parts_is_one_that_a_profile_may_have(tmp_path: Path) -> None:
    """What is counted are parts of one key: neither decimal numbers in a list nor dots in a text."""
    path = tmp_path / "p.toml"
    numbers = ", ".join(["0.5"] * 300)
    path.write_text(f'x = [{numbers}]\ntext = "{"." * 500} a.b.c {"word. " * 300}"\n')
    with pytest.raises(ProfileError) as caught:
        resolve(path)
    assert "more than 100 parts" not in caught.value.message
