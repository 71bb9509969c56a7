# ruff: noqa: RUF001
"""Which encoding is offered for text that is not UTF-8."""

import json
import re
from pathlib import Path

import pytest

from ftui.cli.main import main
from ftui.engine.data.files.blocks import read_blocks
from ftui.engine.data.load_rows import load_data
from ftui.engine.inspection.report import make_report
from ftui.errors import DataError
from tests.support.tiny import make_profile

CEDILLAS = str.maketrans("șțȘȚ", "şţŞŢ")  # the same bytes in iso8859_16 and cp1250
WRITTEN = (
    ("Dans la forêt, n° 3, d'où l'été dernier le garçon naïf mangeait à Noël.", "cp1252", "cp1252"),
    ("L\u2019œuvre a coûté 5 €, c\u2019est sûr.", "cp1252", "cp1252"),
    ("L'œuvre a coûté 5 €, c'est sûr.", "iso8859-15", "iso8859_15"),
    ("Tämä on hyvä päivä mennä metsään.", "latin-1", "cp1252"),
    ("As lições são fáceis, e não há coração que as não lembre.", "cp1252", "cp1252"),
    ("Blåbærgrød på bordet, så køber vi æbler.", "latin-1", "cp1252"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy.", "cp1250", "cp1250"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy.", "iso8859_2", "iso8859_2"),
    ("Zażółć gęślą jaźń. Część książek.", "cp1250", "cp1250"),
    ("Zażółć gęślą jaźń. Część książek.", "iso8859_2", "iso8859_2"),
    ("Egy árvíz, öt, fűzfa, őr, szép az élet.", "cp1250", "cp1250"),
    (
        "Français à Orléans, n° 3, forêt; São João, lições; Müller, Straße; español, mañana; Ångström, Malmö. ",
        "cp1252",
        "cp1252",
    ),
    ("Die Straße führt über die Brücke, schöne Grüße.", "cp1252", "cp1252"),
    ("Die Straße führt über die Brücke, schöne Grüße.", "cp850", "cp850"),
    ("El niño comió más jamón ayer. ¿Qué?", "latin-1", "cp1252"),
    ("El niño comió más jamón ayer. ¿Qué?", "mac_roman", "mac_roman"),
    ("Съешь же ещё этих мягких французских булок, да выпей чаю", "cp1251", "cp1251"),
    ("Съешь же ещё этих мягких французских булок, да выпей чаю", "koi8-r", "koi8_u"),
    ("Съешь же ещё этих мягких французских булок, да выпей чаю", "cp866", "cp866"),
    ("Съешь же ещё этих мягких французских булок, да выпей чаю", "iso8859_5", "iso8859_5"),
    ("привет, как дела сегодня вечером", "cp1251", "cp1251"),
    ("привет, как дела сегодня вечером", "koi8-r", "koi8_u"),
    ("Їжак з'їв яблуко біля річки, і пішов додому.", "cp1251", "cp1251"),
    ("Ο γρήγορος αλεπού πηδά πάνω από το σκυλί.", "cp1253", "cp1253"),
    ("Ο γρήγορος αλεπού πηδά πάνω από το σκυλί.", "iso8859_7", "cp1253"),
    ("Pijamalı hasta yağız şoföre çabucak güvendi.", "cp1254", "cp1254"),
    ("Șase zile în țară, apă și brânză.", "iso8859_16", "cp1250"),
    ("Şase zile în ţară, apă şi brânză.", "cp1250", "cp1250"),
    ("Įlinkdama fechtuotojo špaga sublykčiojusi pragręžė apvalų arbūzą.", "cp1257", "cp1257"),
    ("Glāžšķūņa rūķīši dzērumā čiepj Baha koncertflīģeļu vākus.", "cp1257", "cp1257"),
    ("Põdur Zagrebi tšellomängija-följetonist Ciqo külmetas kehvas garaažis.", "cp1257", "cp1257"),
    ("Gojazni đačić s biciklom drži hmelj i finu vatu u džepu nošnje.", "cp1250", "cp1250"),
    ("Gojazni đačić s biciklom drži hmelj i finu vatu u džepu nošnje.", "iso8859_2", "iso8859_2"),
    ("שלום לכולם, מה שלומכם היום?", "cp1255", "cp1255"),
    ("مرحبا بكم في هذا اليوم الجميل", "cp1256", "cp1256"),
    ("مرحبا بكم في هذا اليوم الجميل", "iso8859_6", "iso8859_6"),
    ("吾輩は猫である。名前はまだ無い。どこで生れたか", "shift_jis", "cp932"),
    ("吾輩は猫である。名前はまだ無い。どこで生れたか", "euc_jp", "euc_jp"),
    ("这是一个测试文本，请阅读以下内容并回答问题。", "gbk", "gb18030"),
    ("這是一個測試文本，請閱讀以下內容並回答問題。", "big5", "big5"),
    ("안녕하세요. 오늘 날씨가 좋습니다.", "euc_kr", "cp949"),
    ("Þórður ætlaði að fá sér kaffi í húsinu.", "latin-1", "cp1252"),
    ("Kŕdeľ šťastných ďatľov učí pri ústí Váhu mĺkveho koňa.", "cp1250", "cp1250"),
    ("Nur ein Café.", "latin-1", "cp1252"),
    ("Tôi là Nam và tôi thích ăn bánh, đi chơi.", "cp1258", "cp1258"),
    ("Trái tim anh luôn vui khi có em bên mi\u0300nh ơ\u0309 đây.", "cp1258", "cp1258"),
    ("Pão e maçã", "latin-1", "cp1252"),
)


@pytest.mark.parametrize(("text", "written", "guessed"), WRITTEN)
def test_a_guess_is_weighed_by_the_letters_of_languages_and_obeyed(
    text: str, written: str, guessed: str, tmp_path: Path
) -> None:
    rows = "".join(f'{{"text": "{text} {number}"}}\n' for number in range(6))
    path = tmp_path / "rows.jsonl"
    path.write_bytes(rows.encode(written))
    with pytest.raises(DataError) as refused:
        list(read_blocks([path]))
    message, hint = refused.value.message, refused.value.hint
    assert f"it may be {guessed} (" in message and "which is a guess" in message
    first, *_ = re.findall(r'"(\w+)"', hint)
    assert first == guessed
    (block,) = read_blocks([path], encoding=first)
    read = json.loads(block.texts[0])["text"]
    assert read == f"{text} 0" or read.translate(CEDILLAS) == f"{text} 0".translate(CEDILLAS)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("吾輩は猫である。名前はまだ無い。", "iso2022_jp"), ("안녕하세요. 오늘 날씨가", "iso2022_kr")],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.txt"])
def test_text_that_changes_its_alphabet_by_escapes_is_not_taken_for_ascii(
    text: str, encoding: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(f'{{"text": "{text}"}}\n'.encode(encoding))
    with pytest.raises(DataError, match=f"but {encoding.upper()}") as refused:
        list(read_blocks([tmp_path / name]))
    assert f'data.encoding = "{encoding}"' in refused.value.hint
    (block,) = read_blocks([tmp_path / "rows.txt"], encoding=encoding) if name == "rows.txt" else [None]
    assert block is None or text in json.loads(block.texts[0])["text"]


@pytest.mark.parametrize(
    ("text", "written", "wrong"),
    [
        ("Zażółć gęślą jaźń. Część książek.", "iso8859_2", "iso8859_10"),
        ("Zażółć gęślą jaźń. Część książek.", "cp1250", "latin-1"),
        ("Съешь же ещё этих мягких французских булок", "cp1251", "cp1252"),
        ("Съешь же ещё этих мягких французских булок", "koi8-r", "cp1252"),
        ("Ο γρήγορος αλεπού πηδά πάνω από το σκυλί.", "cp1253", "cp1251"),
    ],
)
def test_text_read_in_the_wrong_encoding_is_a_finding(
    text: str, written: str, wrong: str, tmp_path: Path, model_folder: Path
) -> None:
    rows = "".join(f'{{"prompt": "why {number}?", "completion": "{text} {number}"}}\n' for number in range(6))
    path = tmp_path / "rows.jsonl"
    path.write_bytes(rows.encode(written))

    def finding(encoding: str) -> str:
        profile = make_profile(model_folder, path, data={"encoding": encoding})
        read = load_data(profile, tmp_path / "cache", lambda detail: None, weights=False)
        messages = [one.message for one in make_report(read, profile).findings if one.name == "damaged_text"]
        return next((message for message in messages if "is data.encoding" in message), "")

    offered = re.search(r'is data.encoding = "(\w+)" meant', finding(wrong))
    assert offered is not None and f"{wrong} it reads" in finding(wrong)
    assert not finding(offered[1]), "obeyed"
    assert rows.encode(written).decode(offered[1]) == rows
    assert not finding(written)


def test_split_offers_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes("".join(f'{{"text": "{WRITTEN[0][0]} {number}"}}\n' for number in range(6)).encode("cp1252"))
    assert main(["split", str(path), "--eval", "2"]) == 31
    assert "--encoding cp1252" in capsys.readouterr().err
