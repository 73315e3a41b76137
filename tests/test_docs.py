"""The examples in the README and the documentation run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/how-it-works.md",
    "docs/choosing.md",
    "docs/filters.md",
    "docs/buffer.md",
    "docs/writing-a-filter.md",
    "docs/files.md",
    "docs/training.md",
]


def only_python(text: str) -> str:
    """Blank every line outside the Python blocks, so that line numbers stay those of the page."""
    lines, inside = [], False
    for line in text.splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        if fence:
            inside = line == "```python"
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, tmp_path, monkeypatch):
    source = only_python((ROOT / page).read_text(encoding="utf-8"))
    assert source.strip(), f"{page} has no Python example"
    script = tmp_path / f"{Path(page).stem}.py"
    script.write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "frugalrl" in runpy.run_path(str(script))


def test_relative_links_lead_somewhere():
    broken = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert broken == []


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"\S+\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert pages == listed, "mkdocs.yml lists other pages under nav than docs/ holds"


def test_every_public_name_is_in_the_reference():
    import frugalrl

    reference = (ROOT / "docs" / "api.md").read_text("utf-8")
    documented = set(re.findall(r"^::: \S+\.(\w+)$", reference, re.MULTILINE))
    assert documented == set(frugalrl.__all__) - {"__version__"}
