# ruff: noqa: RUF001
"""Text of the wrong encoding is told from honest text."""

from ftui.engine.data.facts.mojibake import is_damaged


def test_honest_text_of_any_language_is_not_damaged() -> None:
    honest = [
        "«\u00a0Déjà\u00a0», dit-il\u00a0; où est l’été\u00a0? ÇA\u00a0! LIBERTÉ»", "Größe „Äpfel“, »Öl«, ÄÖÜß, Straße…",
        "São João, NÃO, IRMÃ…", "Он сказал: «СССР» — Россия, Ёлка", "Її ґанок, їжак", "中文，。「你好」", "これは、ひらがな‚と", "한국어 문장",
        "naïve café—“quoted”", "Ελληνικά· «ναι»", "العربية، نعم", "ƒ(x) = ‚a‘", "ÀÉÎÕÜ",
        "Ñandú ÁÉÍ", "öööööööö", "5 × 3 ± 2 °C £5 ¿Qué?", "emoji 👍🏽 👩‍💻", "Việt Nam: Đường ƯỜ ấy", "Łódź, Żółć",
    ]  # fmt: skip
    assert [text for text in honest if is_damaged(text)] == []
    for text in honest:
        if any(ord(sign) > 0xFF and sign.isalpha() for sign in text) or "é" in text:
            assert is_damaged(text.encode().decode("cp1252", "replace")), text
    assert is_damaged("Привет всем, это было давно".encode("cp1251").decode("latin-1"))
    assert is_damaged("Привет, мир".encode().decode("cp1251", "replace"))
    assert is_damaged("ひらがな".encode("shift_jis").decode("cp1252", "replace"))
    assert is_damaged("a\0b") and is_damaged("it\x92s")


def test_letters_that_are_listed_are_not_damaged() -> None:
    """Patterns, tables and vowels of a language; what was read wrong is words, however few letters they share."""
    listed = [
        "re.compile(r'[a-zA-ZäöüÄÖÜß]+')", "Umlaute: ÄÖÜäöüß", "[äöüÄÖÜß]{2,} äöü ÄÖÜ ß, äöüß äöüÄÖÜß", "åäöÅÄÖ",
        "s.replace(/[àáâãäå]/g,'a').replace(/[èéêë]/g,'e').replace(/[ìíîï]/g,'i')", "àáâãäå èéêë ìíîï òóôõö",
        "str.maketrans('áéíóúñÁÉÍÓÚÑ','aeiounAEIOUN')", "voyelles: àâäéèêëïîôùûüÿç, ÀÂÄÉÈÊËÏÎÔÙÛÜŸÇ",
        "tr('ÀÁÂÃÄÅàáâãäåÒÓÔÕÖØòóôõöøÈÉÊËèéêëÇçÌÍÎÏìíîïÙÚÛÜùúûüÿÑñ', 'AAAAAAaaaaaa')", "¡¢£¤¥ »¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞß",
    ]  # fmt: skip
    assert [text for text in listed if is_damaged(text)] == []
    russian = "Привет всем, это было давно. Мы написали программу и проверили результаты."
    chinese = "这是一个测试文本，请阅读以下内容并回答问题。"
    greek = "Ελληνικά γράμματα και λέξεις"
    for text, encoding in ((russian, "cp1251"), (russian, "koi8-r"), (chinese, "gbk"), (greek, "iso8859-7")):
        assert is_damaged(text.encode(encoding).decode("latin-1")), text
    assert is_damaged("x = 1  # " + "проверка данных".encode("cp1251").decode("latin-1"))
