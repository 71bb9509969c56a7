"""Pages, pictures and tables of runs, read back by readers that are not ours: html5lib, lxml, csv, pillow."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import html5lib
import msgspec
import pytest
from lxml import etree
from PIL import Image

from ftui.reports.comparison_page import comparison_chart, comparison_page
from ftui.reports.html_page import policy
from ftui.reports.png_chart import draw_png
from ftui.reports.run_curves import AXES, RunCurves, read_run_curves
from ftui.reports.run_page import report_page, run_charts
from ftui.reports.run_record import RunRecord, read_record
from ftui.reports.step_table import write_table
from ftui.reports.svg_chart import draw_svg
from ftui.runs.events import EvaluationDone, Step
from ftui.runs.journal import Tail, encode
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.run_folder import Run
from tests.support.evil import EVIL, evil_run, steers
from tests.support.replayed import list_recordings, replay

HOSTILE = (
    '<script>document.title="owned"</script><img src=http://127.0.0.1:9/x onerror="document.title=1">'
    "</style></title></svg></pre><svg onload=alert(1)>&lt;b&gt;\"'`{{ 7*7 }}{% raw %}]]>--><!--"
)
TEXTS = {**EVIL, "html": HOSTILE}
SVG = "http://www.w3.org/2000/svg"


def read(run: Run) -> tuple[RunRecord, RunCurves]:
    record = read_record(run)
    return record, read_run_curves(record)


def parsed(page: str) -> Any:
    """As a browser understands it. Raises where HTML 5 calls something an error."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def check_harmless(page: str) -> Any:
    """No script, no handler, no address of anything outside, a policy that forbids all of it, nothing unseen."""
    tree = parsed(page)
    elements = list(tree.iter())
    names = {element.tag for element in elements if isinstance(element.tag, str)}
    assert (
        names & {"script", "iframe", "object", "embed", "link", "img", "base", "form", "use", "foreignObject"} == set()
    )
    for element in elements:
        for name in element.attrib:
            assert not name.startswith("on") and name not in ("src", "href", "style", "srcset", "action"), name
    metas = {e.get("http-equiv"): e.get("content") for e in elements if e.tag == "meta" and e.get("http-equiv")}
    assert metas == {"Content-Security-Policy": policy()}
    assert "default-src 'none'" in policy() and "unsafe" not in policy()
    (style,) = (element for element in elements if element.tag == "style")
    assert "url(" not in style.text and "@import" not in style.text
    text = "".join(tree.itertext())
    assert steers(text.replace("\n", "")) == []
    return tree


@pytest.mark.parametrize("name", list_recordings())
def test_the_page_of_every_recorded_run(name: str, tmp_path: Path) -> None:
    record, curves = read(replay(name, tmp_path))
    text = "".join(check_harmless(report_page(record, curves)).itertext())
    assert name in text
    for one in record.evaluations:
        assert f"{one.loss:.4f}" in text
    for entry in record.checkpoints:
        assert entry.name in text
    if record.state.message:
        assert record.state.message in text


def test_the_page_says_how_the_result_is_loaded_and_what_it_answers(tmp_path: Path) -> None:
    run = replay("wiki-style-finished", tmp_path)
    text = "".join(parsed(report_page(*read(run))).itertext())
    assert f"AutoPeftModelForCausalLM.from_pretrained('{run.final}')" in text
    state = read_record(run).state
    for sample in [*state.samples_before, *state.samples_after]:
        assert sample.prompt in text and sample.completion in text


@pytest.mark.parametrize("kind", TEXTS)
def test_a_hostile_run_has_a_harmless_page(kind: str, tmp_path: Path) -> None:
    run = evil_run(tmp_path / "evil", TEXTS[kind])
    record, curves = read(run)
    tree = check_harmless(report_page(record, curves))
    assert [e.tag for e in tree.iter() if e.tag in ("b", "red", "x")] == []
    other = evil_run(tmp_path / "other", f"{TEXTS[kind]}2")
    check_harmless(comparison_page([record, read_record(other)], [curves, read_run_curves(read_record(other))]))


def test_alarms_are_on_the_page(tmp_path: Path) -> None:
    run = replay("wiki-style-finished", tmp_path)
    alarm = HealthAlarm(
        rule="loss_spike", level="amber", step=600, evidence="<b>12</b>", suggestion="Look at the rows."
    )
    attempt = read_record(run).state.attempt
    with run.journal.open("ab") as file:
        file.write(encode(msgspec.structs.replace(alarm, attempt=attempt, time=1e10)))
    text = "".join(parsed(report_page(*read(run))).itertext())
    assert "loss spike at step 600" in text and "<b>12</b> Look at the rows." in text


def test_what_is_hostile_stays_readable(tmp_path: Path) -> None:
    text = "".join(parsed(report_page(*read(evil_run(tmp_path / "evil", HOSTILE)))).itertext())
    assert HOSTILE in text


def test_a_page_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "Q" * 34)
    page = report_page(*read(evil_run(tmp_path / "evil", f"token hf_{'Q' * 34} here")))
    assert "QQQQ" not in page and "here" in page


@pytest.mark.parametrize("kind", ["html", "escapes" if "escapes" in TEXTS else "colour", "lines", "wide"])
def test_pictures_are_xml_and_nothing_more(kind: str, tmp_path: Path) -> None:
    record, curves = read(evil_run(tmp_path / "evil", TEXTS[kind]))
    charts = run_charts(record, curves)
    assert len(charts) > 3
    for chart in charts:
        tree = etree.fromstring(draw_svg(chart), etree.XMLParser(resolve_entities=False))
        tags = {etree.QName(element).localname for element in tree.iter()}
        assert tags <= {"svg", "title", "rect", "text", "line", "polygon", "polyline", "path"}
        assert etree.QName(tree).namespace == SVG


def test_points_stand_where_the_values_say(tmp_path: Path) -> None:
    """The evaluations of the picture, read back through the numbers at its axes."""
    record, curves = read(replay("wiki-style-finished", tmp_path))
    chart = run_charts(record, curves)[0]
    tree = etree.fromstring(draw_svg(chart))
    marks = [re.match(r"M([\d.]+) ([\d.]+)m0", p.get("d")) for p in tree.iter(f"{{{SVG}}}path")]
    found = [(float(m[1]), float(m[2])) for m in marks if m][: len(record.evaluations)]
    (low_y, low), (high_y, high) = (
        (float(label.get("y")), float(label.text))
        for label in [e for e in tree.iter(f"{{{SVG}}}text") if e.get("text-anchor") == "end" and e.get("dy")][:2]
    )
    for (_, y), one in zip(found, record.evaluations, strict=True):
        assert low + (y - low_y) / (high_y - low_y) * (high - low) == pytest.approx(one.loss, abs=0.005)


def test_a_png_is_a_picture(tmp_path: Path) -> None:
    record, curves = read(replay("wiki-style-finished", tmp_path))
    evil = read(evil_run(tmp_path / "evil", "$\\frac{1}{0}$ \x1b[31m ^_{"))
    chart = comparison_chart([record, evil[0]], [curves, evil[1]], "time")
    assert chart is not None
    picture = Image.open(io.BytesIO(draw_png(chart)))
    picture.load()
    assert picture.format == "PNG" and picture.size == (1720, 760)


def test_a_comparison_is_drawn_over_every_axis_that_is_known(tmp_path: Path) -> None:
    both = [read(replay(name, tmp_path)) for name in ("wiki-style-finished", "exploded")]
    records, curves = [r for r, _ in both], [c for _, c in both]
    tree = check_harmless(comparison_page(records, curves))
    assert len([e for e in tree.iter(f"{{{SVG}}}svg")]) + len(list(tree.iter("svg"))) == len(AXES) - 1  # no price
    assert "train.learning_rate" in "".join(tree.itertext())


@pytest.mark.parametrize("name", list_recordings())
def test_the_table_has_each_step_once(name: str, tmp_path: Path) -> None:
    run = replay(name, tmp_path)
    record, curves = read(run)
    text = io.StringIO(newline="")
    write_table([record], [curves], text)
    rows = list(csv.DictReader(io.StringIO(text.getvalue(), newline=""), strict=True))
    steps = {r.step: r for r in Tail(run.metrics).read() if isinstance(r, Step)}  # of a step taken twice the later one
    own = [row for row in rows if row["step"] != "0"]
    assert [int(row["step"]) for row in own] == sorted(steps)
    for row in own:
        step = steps[int(row["step"])]
        assert row["loss"] == ("" if step.loss is None else repr(step.loss))
        assert float(row["time"]) == step.time and int(row["num_target_tokens"]) == step.num_target_tokens
    evaluated = {r.step: r for r in Tail(run.journal).read() if isinstance(r, EvaluationDone)}
    told = {int(row["step"]): float(row["eval_loss"]) for row in rows if row.get("eval_loss")}
    assert told == {step: one.loss for step, one in evaluated.items() if step in told}
    assert {step for step in evaluated if step in steps or step == 0} == told.keys()


def test_a_table_of_hostile_runs_computes_nothing(tmp_path: Path) -> None:
    run = evil_run(tmp_path / "=1+1", '=cmd|"/c calc"!A0\n","')
    text = io.StringIO(newline="")
    write_table([read_record(run)], [read(run)[1]], text)
    rows = list(csv.reader(io.StringIO(text.getvalue(), newline=""), strict=True))
    assert len({len(row) for row in rows}) == 1 and len(rows) > 8
    assert [cell for row in rows for cell in row if cell[:1] in ("=", "+", "@") or steers(cell)] == []
