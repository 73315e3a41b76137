"""The report without a browser: what it says, and that its parts are well formed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects
import pytest
from bench_made_up import made_up_suite

from frugalrl.bench.aggregate import MethodSummary, Summary, summarize
from frugalrl.bench.errors import BenchError
from frugalrl.bench.report import tables
from frugalrl.bench.report.figure import Bars, Figure, Line, mark_coinciding, render, tick_label
from frugalrl.bench.report.figures import all_figures, reward_over_bytes
from frugalrl.bench.report.table import Column, Entry, Table, show, to_latex, to_markdown
from frugalrl.bench.report.verdict import verdict, warnings
from frugalrl.bench.report.write import write_report
from frugalrl.bench.results import read_results
from frugalrl.bench.suites import Task
from frugalrl.commands.grids import summary_lines
from frugalrl.files import read_json, write_json
from frugalrl.training.errors import StorageError

pytestmark = pytest.mark.usefixtures("undrawn")
MakeResults = Callable[..., Path]
NASTY = "<script>alert(1)</script>-v0"


class Balance(HTMLParser):
    """Checks that every element that is opened is closed."""

    void = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def several_tasks(seeds: int = 4) -> object:
    tasks = (
        Task("Pendulum-v1", "sac", 2_000),
        Task("Hopper-v5", "td3", 2_000),
        Task(NASTY, "sac", 2_000),
    )
    methods = (
        "baseline",
        "fac",
        "laber",
        "random-slot",
        "small",
        "fac@epsilon=0.1",
        "fac@kernel=tophat",
    )
    return made_up_suite(tasks, methods, seeds)


def test_everything_is_written(make_results: MakeResults) -> None:
    root = make_results(several_tasks(), failed=(("laber", 1),))
    page = write_report(root)
    text = page.read_text("utf-8")
    assert page == root / "report.html"
    assert page.stat().st_size < 5_000_000
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert len(balance.ids) == len(set(balance.ids))
    for part in (
        "FAC against the baseline",
        "FAC against LaBER",
        "Control cost",
        "Benchmarks",
        "17,600",  # a published number beside ours
        "reward while training",
        "growth of the buffer",
        "acceptance over time",
        "states visited",
        "states stored",
        "rewards per cell",
        "epsilon, density below which",
        "kernel, kernel of the reward density",
        "Computation time",
        "Performance profile",
        "0123abc",
        "frugalrl compare Pendulum-v1",
        "frugalrl train Pendulum-v1 --algo sac --steps 2000 --seed 1",
        "frugalrl train Hopper-v5 --algo td3 --steps 2000 --seed 2",
        "prefers-color-scheme: dark",
        "@media print",
        "max-width: 640px",
    ):
        assert part in text, part
    rows = (root / "runs.csv").read_text("utf-8").splitlines()
    assert rows[0].startswith("env,algo,method,seed,steps,reward,")
    assert len(rows) == 1 + 81  # of 84, one seed of laber failed on each of three tasks
    drawings = {path.stem for path in (root / "figures").glob("*.svg")}
    assert {"learning-pendulum-v1-sac", "time", "profile", "kernels"} <= drawings


def test_nothing_is_fetched_from_anywhere(make_results: MakeResults) -> None:
    text = write_report(make_results()).read_text("utf-8")
    without_plotly = re.sub(r'(?s)<script id="plotly".*?</script>', "", text)
    assert "http" not in without_plotly
    assert "src=" not in without_plotly


def test_names_are_escaped(make_results: MakeResults) -> None:
    root = make_results(several_tasks(3), failed=(("laber", 1),), command="frugalrl <b>bench</b>")
    text = write_report(root).read_text("utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "<b>bench" not in text
    assert "<b>no</b>" not in text  # from a traceback
    assert "<script>" not in (root / "tables.md").read_text("utf-8")
    figures = all_figures(summarize(read_results(root)))
    nasty = next(figure for figure in figures if NASTY in figure.title)
    assert b"<script>" not in render(nasty)["svg"]


def test_figures_are_valid_for_plotly_and_as_svg(make_results: MakeResults) -> None:
    summary = summarize(read_results(make_results(several_tasks())))
    figures = all_figures(summary)
    assert len({figure.id for figure in figures}) == len(figures)
    for figure in figures:
        spec = figure.to_plotly()
        plotly.graph_objects.Figure(data=spec["data"], layout=spec["layout"])  # raises if invalid
    kinds = {type(figure.traces[0]): figure for figure in figures}
    for figure in kinds.values():
        drawn = render(figure)
        assert ElementTree.fromstring(drawn["svg"]).tag.endswith("svg")
        assert drawn["pdf"].startswith(b"%PDF")
        assert render(figure) == drawn  # the same bytes every time


def test_colours_are_the_papers(make_results: MakeResults) -> None:
    figures = all_figures(summarize(read_results(make_results())))
    curves = next(figure for figure in figures if figure.id.startswith("learning"))
    colors = {trace.name: trace.color for trace in curves.traces}
    red, green, blue = ({n: int(c[i : i + 2], 16) for n, c in colors.items()} for i in (1, 3, 5))
    assert blue["FAC"] > 150 > red["FAC"]
    assert red["LaBER"] > 200 > 100 > green["LaBER"]
    assert red["Baseline"] > 200 > green["Baseline"] > 100 > blue["Baseline"]


def test_published_numbers_stand_beside_ours(make_results: MakeResults) -> None:
    root = make_results()
    write_report(root)
    text = (root / "tables.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if "(paper 20,000)" in line)
    assert "2,000 (paper 20,000)" in row
    assert "50.00 (paper 42.94)" in row
    assert "(paper −143.97 ± 87.80)" in row
    assert "Reacher (SAC) | P | 2.17 | 2.057 | misprint" in text
    latex = (root / "tables.tex").read_text("utf-8")
    assert latex.isascii()  # compiles with any LaTeX
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") > 5


def test_published_numbers_stand_beside_the_papers_method_alone(
    make_results: MakeResults,
) -> None:
    suite = made_up_suite(methods=("baseline", "fac-paper", "fac"), seeds=1)
    rows = tables.full(summarize(read_results(make_results(suite)))).rows
    assert [row[tables.TASK].published for row in rows] == ["paper: 20,000 steps", None]


def test_a_verdict_has_two_sentences(make_results: MakeResults) -> None:
    text = verdict(summarize(read_results(make_results())))
    assert len(re.findall(r"\.(?:\s|$)", text)) == 2
    assert "50 % of the baseline's transitions" in text
    assert "did worse" in text  # the made-up controls are far below
    assert "with 5 seeds the evidence is weak" in text


def test_many_tasks_are_judged_by_the_probability_of_improvement(
    make_results: MakeResults,
) -> None:
    text = verdict(summarize(read_results(make_results(several_tasks(10)))))
    assert text.startswith("Over 3 tasks")
    assert "probability" in text
    assert "weak" not in text


def test_controls_that_do_as_well_are_said_to(make_results: MakeResults) -> None:
    root = make_results()
    for path in root.glob("runs/**/done.json"):
        done = read_json(path)
        assert done is not None
        seed = int(path.parent.name.removeprefix("seed-"))
        # Controls are as good as FAC, whose lead is small beside what seeds differ by.
        lead = 0.01 * (seed + 1) if done["stored"] == 1_000 else 0.0
        write_json(path, {**done, "reward": 100.0 + (seed - 2) + lead})
    text = verdict(summarize(read_results(root)))
    assert "an advantage seed by seed that Welch's test (p = 0.98) does not confirm" in text
    assert "50 % of its bytes, the filter's own included" in text
    assert (
        "Neither overwriting at random in a buffer of the same size nor a ring of the same size "
        in text
    )
    assert "do not show that it matters what is kept" in text


def test_without_controls_nothing_is_claimed(make_results: MakeResults) -> None:
    suite = made_up_suite(methods=("baseline", "fac"))
    assert "Neither control was run" in verdict(summarize(read_results(make_results(suite))))


def test_the_papers_method_is_judged_where_it_alone_was_run(make_results: MakeResults) -> None:
    suite = made_up_suite(methods=("baseline", "fac-paper"))
    text = verdict(summarize(read_results(make_results(suite))))
    assert text.startswith("On Pendulum-v1 (SAC) with 5 seeds FAC (paper) ended with 50 % of the")


def test_one_seed_has_no_interval(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(seeds=1))
    write_report(root)
    summary = summarize(read_results(root))
    assert "too few seeds to tell" in verdict(summary)
    assert "With 1 seed it cannot be told from its controls" in verdict(summary)
    assert "only 1 seed" in warnings(summary)[0]
    table = (root / "tables.md").read_text("utf-8").partition("## FAC against")[0]
    assert "\\[" not in table  # no interval anywhere


def test_many_differences_are_not_corrected_for_their_number(make_results: MakeResults) -> None:
    tasks = Task("Pendulum-v1", "sac", 2_000), Task("Hopper-v5", "td3", 2_000)
    summary = summarize(read_results(make_results(made_up_suite(tasks=tasks, seeds=10))))
    assert [note for note in warnings(summary) if note.startswith("8 differences are judged")]


def test_ten_seeds_are_not_called_weak(make_results: MakeResults) -> None:
    summary = summarize(read_results(make_results(made_up_suite(seeds=10))))
    assert warnings(summary) == []


def test_all_runs_failed(make_results: MakeResults) -> None:
    suite = made_up_suite(methods=("baseline", "fac"), seeds=2)
    everything = tuple((m, s) for m in ("baseline", "fac") for s in (0, 1))
    root = make_results(suite, failed=everything)
    text = write_report(root).read_text("utf-8")
    assert "None of the 4 runs of this grid has a result: 4 failed" in text
    assert "<title>smoke: no results</title>" in text
    assert "ValueError" in text


def test_methods_without_a_baseline_are_only_listed(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(methods=("laber", "per"), seeds=3))
    assert "cannot compare the two" in verdict(summarize(read_results(root)))
    assert write_report(root).is_file()


def test_a_changed_filter_beside_a_baseline_is_no_ablation(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(methods=("baseline", "fac@mu=30"), seeds=3))
    assert "not both FAC and its baseline on one task" in verdict(summarize(read_results(root)))


def test_an_ablation_is_compared_with_the_filter_as_it_is(make_results: MakeResults) -> None:
    methods = ("fac", "fac@epsilon=0.1", "fac@epsilon=0.5")
    root = make_results(made_up_suite(methods=methods, seeds=5))
    summary = summarize(read_results(root))
    said = verdict(summary)
    assert said == (
        "Of 2 methods with a changed parameter 2 (epsilon=0.1, epsilon=0.5) ended clearly lower "
        "than FAC as it is; their buffers hold 100 % of its transitions. With 5 seeds the "
        "evidence is weak."
    )
    write_report(root)
    rows = (root / "tables.md").read_text("utf-8").partition("## FAC against")[0]
    assert "vs FAC" in rows
    figures = {figure.id: figure.to_plotly() for figure in all_figures(summary)}
    # Values like 0.1 are names of bars, not places on an axis.
    assert figures["epsilon-buffer-pendulum-v1-sac"]["layout"]["xaxis"]["type"] == "category"


def test_changed_filters_without_a_figure_of_their_own_share_one(
    make_results: MakeResults,
) -> None:
    methods = ("baseline", "fac", "fac@mu=30", "fac@epsilon=0.1,mu=30", "fac@epsilon=0.1,mu=70")
    summary = summarize(read_results(make_results(made_up_suite(methods=methods))))
    curves = all_figures(summary)[0].traces
    assert [trace.name for trace in curves] == [
        "Baseline",
        "FAC",
        "FAC, epsilon 0.1, mu 30",
        "FAC, epsilon 0.1, mu 70",
    ]
    assert len({trace.color for trace in curves}) == 4
    alone = made_up_suite(methods=("baseline", "fac@mu=30"))
    summary = summarize(read_results(make_results(alone, name="alone")))
    assert [trace.name for trace in all_figures(summary)[0].traces] == ["Baseline", "FAC, mu 30"]


def mine_of(summary: Summary, method: str) -> MethodSummary:
    entry = summary.get(("Pendulum-v1", "sac"), method)
    assert entry is not None
    return entry


def test_rules_are_compared_at_equal_size(make_results: MakeResults) -> None:
    budgets = tuple(f"{rule}@share=0.05" for rule in ("small", "random-slot", "fac"))
    methods = ("baseline", "fac", "small", "random-slot", *budgets)
    suite = made_up_suite(methods=methods)
    root = make_results(suite, missing=(("small@share=0.05", 0),))
    summary = summarize(read_results(root))
    table = tables.equal_size(summary)
    rows = {row[tables.METHOD].value: [it.text for it in row.values()] for row in table.rows}
    assert set(rows) == set(methods) - {"baseline"}
    assert {rows[name][1] for name in budgets} == {"5 % of the steps"}
    assert {rows[name][1] for name in ("fac", "small", "random-slot")} == {"that of fac"}
    assert rows["fac"][7].startswith("+")  # the made-up control is far below
    assert rows["random-slot@share=0.05"][7] == "–"
    mine, other = (summary.get(("Pendulum-v1", "sac"), name) for name in budgets[:2])
    assert mine is not None
    assert other is not None
    found = mine.against(other, "rewards")
    assert found is not None
    both = [mine.rewards[seed] - other.rewards[seed] for seed in (1, 2, 3, 4)]  # that both have
    assert found.difference.value == pytest.approx(np.mean(both))
    figure = reward_over_bytes(summary, ("Pendulum-v1", "sac"))
    points = {trace.name: trace for trace in figure.traces}
    assert set(points) == {"Baseline", "FAC", "Small ring", "Random slot"}
    assert points["Small ring"].x.size == 3  # 5 %, FAC's size, and everything
    assert points["Small ring"].x[-1] == points["Baseline"].x[0]
    late = reward_over_bytes(summary, ("Pendulum-v1", "sac"), late=True)
    assert late.id == "late-pendulum-v1-sac"
    assert points["Baseline"].y[0] == mine_of(summary, "baseline").reward.value
    assert late.traces[-1].y[0] == mine_of(summary, "baseline").late_reward.value  # drawn on top
    assert rows["fac"][11].startswith("+")
    said = verdict(summary)
    assert said.startswith("Pendulum-v1 (SAC): the full buffer ends at ")
    assert "With 5 % of the steps clearly below it: " in said
    assert "above it" not in said
    assert write_report(root).is_file()


def test_a_comparison_ends_in_a_table(make_results: MakeResults) -> None:
    lines = summary_lines(summarize(read_results(make_results(several_tasks()))))
    heads = ["seeds", "reward", "vs", "baseline", "second", "half"]
    heads += ["transitions", "buffer", "training"]
    assert lines[0].split() == heads
    assert lines[1].startswith("Pendulum-v1 (SAC): baseline")
    assert len({len(line) for line in lines[1:21]}) <= 2  # columns stand below each other
    assert lines[-1].endswith(".")


def test_unequal_seeds_are_warned_of(make_results: MakeResults) -> None:
    summary = summarize(read_results(make_results(missing=(("laber", 1),))))
    assert any("different seeds" in note and "laber 4" in note for note in warnings(summary))


def test_runs_that_lack_evaluations_are_warned_of(make_results: MakeResults) -> None:
    root = make_results()
    path = root / "runs/Pendulum-v1/sac/fac/seed-0/run/evaluations.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    notes = [note for note in warnings(summarize(read_results(root))) if "are missing" in note]
    assert len(notes) == 1
    assert "fac" in notes[0]
    assert "baseline" not in notes[0]


def test_code_that_changed_between_runs_is_warned_of(make_results: MakeResults) -> None:
    root = make_results(made_up_suite(seeds=10))
    path = root / "runs/Pendulum-v1/sac/fac/seed-0/done.json"
    done = read_json(path)
    assert done is not None
    write_json(path, {**done, "commit": "fedcba"})
    assert any("2 different versions" in note for note in warnings(summarize(read_results(root))))


def test_numbers_are_written_for_readers() -> None:
    assert show(1234.5) == "1,234.50"
    assert show(-3.14159, 1) == "−3.1"
    assert show(0.004, sign=True) == "0.00"
    assert show(2.0, 0, sign=True) == "+2"
    assert show(float("nan")) == "–"


def test_tables_escape_what_their_format_reserves() -> None:
    row = {Column("|R|"): Entry("1|2"), Column("a_b"): Entry("<i>")}
    table = Table("x", "A & B", "50 %", [row])
    markdown, latex = to_markdown(table), to_latex(table)
    assert "1\\|2" in markdown
    assert "&lt;i&gt;" in markdown
    assert r"A \& B" in latex
    assert r"50 \%" in latex
    assert r"a\_b" in latex


def test_tick_labels_are_short() -> None:
    labels = [tick_label(value) for value in (20_000, 1e6, 2.5e9, -0.25, 0)]
    assert labels == ["20k", "1M", "2.5G", "−0.25", "0"]


def test_awkward_data_is_drawn() -> None:
    empty, one = np.empty(0), np.array([1.0])
    nothing, single = Line("n", empty, empty, "#000000"), Line("m", one, one, "#000000")
    assert b"<svg" in render(Figure("a", "t $1$ t", "x", "y", [nothing, single]))["svg"]
    bars = Figure(
        "b",
        "t",
        "x",
        "y",
        [Bars("n", np.array([0.0, 10.0, np.nan]), "#123456")],
        categories=["one", "a name that is far too long to stand below a bar", "three"],
        y_scale="log",
    )
    assert b"<svg" in render(bars)["svg"]


def test_a_single_curve_has_a_legend_too() -> None:
    x = np.arange(5.0)
    assert Figure("f", "t", "x", "y", [Line("Small ring", x, x, "#000000")]).has_legend
    assert not Figure("f", "t", "x", "y", [Bars("", x, "#000000")]).has_legend


def test_lines_that_coincide_are_told_apart() -> None:
    x = np.arange(5.0)
    lines = [Line(name, x, y, "#000000") for name, y in (("a", x), ("b", 2 * x), ("c", x))]
    figure = mark_coinciding(Figure("f", "t", "x", "y", lines, caption="Means."))
    assert figure.caption == "Means. a and c coincide."
    assert [trace.width for trace in figure.traces] == [5.0, 2.0, 2.0]


def test_a_line_with_a_gap_leaves_it_to_others_to_coincide() -> None:
    x = np.arange(5.0)
    gap = np.where(x == 2.0, np.nan, 2 * x)
    lines = [Line(name, x, y, "#000000") for name, y in (("a", x), ("b", gap), ("c", 1.001 * x))]
    assert mark_coinciding(Figure("f", "t", "x", "y", lines)).caption == "a and c coincide."


def test_a_report_touches_only_what_reports_wrote(
    make_results: MakeResults, tmp_path: Path
) -> None:
    root = make_results(several_tasks())
    out = tmp_path / "site"
    write_report(root, out)
    mine = out / "figures" / "mine.svg"
    mine.write_text("<svg/>", "utf-8")
    gone = out / "figures" / "learning-hopper-v5-td3.svg"
    assert gone.is_file()
    smaller = make_results(made_up_suite(), name="smaller")
    write_report(smaller, out)
    assert not gone.exists()
    assert mine.read_text("utf-8") == "<svg/>"


def test_every_figure_of_an_earlier_report_is_removed(
    make_results: MakeResults, tmp_path: Path
) -> None:
    methods = ("fac", "fac@on_equivalent=discard")
    out = tmp_path / "site"
    write_report(make_results(made_up_suite(methods=methods, seeds=1)), out)
    smaller = make_results(made_up_suite(methods=("fac",), seeds=1), name="smaller")
    write_report(smaller, out)
    listed = read_json(out / "report.json")
    assert listed is not None
    left = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert left == {"report.json", *listed["files"]}


@pytest.mark.parametrize("name", ["report.html", "tables.md", "figures/time.pdf"])
def test_a_file_in_the_way_is_left_alone(
    make_results: MakeResults, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "site"
    path = out / name
    path.parent.mkdir(parents=True)
    path.write_text("mine", "utf-8")
    with pytest.raises(BenchError, match="is in the way: no report wrote it"):
        write_report(make_results(), out)
    assert [p for p in out.rglob("*") if p.is_file()] == [path]
    assert path.read_text("utf-8") == "mine"


def test_a_list_of_files_that_was_tampered_with_removes_nothing_else(
    make_results: MakeResults, tmp_path: Path
) -> None:
    out, letter = tmp_path / "site", tmp_path / "letter.txt"
    letter.write_text("dear", "utf-8")
    out.mkdir()
    write_json(out / "report.json", {"files": ["../letter.txt", "figures/../../letter.txt"]})
    write_report(make_results(), out)
    assert letter.is_file()


def test_a_report_on_a_full_disk_leaves_the_old_one_whole(
    make_results: MakeResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_results()
    write_report(root)
    before = (root / "report.html").read_bytes()

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_bytes", no_room)
    with pytest.raises(StorageError, match="No space left on device"):
        write_report(root)
    assert (root / "report.html").read_bytes() == before
