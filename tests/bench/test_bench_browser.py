"""The report in headless Chromium: drawn, without console errors, sortable, light and dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bench_made_up import made_up_suite, make_results_in

from frugalrl.bench.report.write import write_report
from frugalrl.bench.suites import Task

# Runs inside the page: waits for the figures, uses the page as a reader would, writes down what
# it saw.
PROBE = """
<script>
const seen = {errors: []};
addEventListener("error", (event) => seen.errors.push(event.message));
addEventListener("unhandledrejection", (event) => seen.errors.push(String(event.reason)));
const complain = console.error;
console.error = (...words) => { seen.errors.push(words.join(" ")); complain(...words); };
const column = (table, index) =>
  [...table.tBodies[0].rows].map((row) => row.cells[index].dataset.value);
const marks = ".scatterlayer .trace, .barlayer .trace, .heatmaplayer image";
const look = () => {
  const plots = [...document.querySelectorAll(".plot")];
  seen.plots = plots.length;
  seen.empty = plots.filter((plot) => !plot.querySelector(marks)).map((plot) => plot.id);
  seen.wide = document.documentElement.scrollWidth - window.innerWidth;
  seen.tables = document.querySelectorAll("table.sortable").length;
  const table = document.getElementById("table-methods");
  const heads = table.tHead.rows[0].cells;
  heads[3].querySelector("button").click();
  seen.rising = column(table, 3).map(Number);
  seen.sort = heads[3].getAttribute("aria-sort");
  heads[3].querySelector("button").click();
  seen.falling = column(table, 3).map(Number);
  heads[1].querySelector("button").click();
  seen.names = column(table, 1);
  const background = () => getComputedStyle(document.body).backgroundColor;
  const before = background();
  document.getElementById("theme").click();
  seen.theme = [before, background()];
  const output = document.createElement("script");
  output.type = "text/plain";
  output.id = "seen";
  output.textContent = JSON.stringify(seen);
  document.body.append(output);
};
const wait = () => {
  if (document.documentElement.dataset.figures === "drawn") look(); else setTimeout(wait, 50);
};
addEventListener("load", wait);
</script>
"""

Look = Callable[..., dict[str, Any]]


NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), "")

# `make test` installs it where it may.
pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),  # in one process, so that the page is made once
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    tasks = (Task("Pendulum-v1", "sac", 2_000), Task("<b>Hopper</b>-v5", "td3", 2_000))
    methods = ("baseline", "fac", "laber", "random-slot", "small", "fac@epsilon=0.1")
    root = make_results_in(
        tmp_path_factory.mktemp("browser"), made_up_suite(tasks, methods, 3), (("laber", 1),)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("frugalrl.bench.report.write.render", lambda _: {})
        return write_report(root).read_text("utf-8")


@pytest.fixture
def look(tmp_path: Path, page: str) -> Look:
    """Open the report in a window of some size and give what the probe saw."""

    def open_page(width: int, height: int = 900) -> dict[str, Any]:
        path = tmp_path / "report.html"
        path.write_text(page.replace("<head>", f"<head>{PROBE}", 1), "utf-8")
        done = subprocess.run(
            [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
                "--disable-sync",
                "--no-first-run",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},{height}",
                "--virtual-time-budget=60000",
                "--enable-logging=stderr",
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        found = re.search(r'(?s)<script type="text/plain" id="seen">(.*?)</script>', done.stdout)
        assert found is not None, done.stderr[-2000:]
        seen: dict[str, Any] = json.loads(unescape(found.group(1)))
        seen["console"] = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return seen

    return open_page


def test_the_report_on_a_desk(look: Look) -> None:
    seen = look(1280)
    assert seen["errors"] == []
    assert seen["console"] == []
    assert seen["plots"] > 15
    assert seen["empty"] == []
    assert seen["wide"] <= 0
    assert seen["tables"] >= 8
    assert seen["rising"] == sorted(seen["rising"])
    assert seen["sort"] == "ascending"
    assert seen["falling"] == sorted(seen["falling"], reverse=True)
    assert seen["names"] == sorted(seen["names"], key=str.lower)
    assert seen["theme"][0] != seen["theme"][1]


def test_the_report_on_a_phone(look: Look) -> None:
    seen = look(390)
    assert seen["errors"] == []
    assert seen["console"] == []
    assert seen["empty"] == []
    assert seen["wide"] <= 0  # tables scroll inside their frames, the page does not
