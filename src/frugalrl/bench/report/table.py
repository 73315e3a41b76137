"""Tables as data, written as HTML, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from frugalrl.bench.statistics import Estimate

PUBLISHED_BELOW = "paper"
"""Below a row's name: the second line of the row is the paper's."""

_MINUS = "\N{MINUS SIGN}"
_NONE = "\N{EN DASH}"
_TEX_SIGNS = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        _MINUS: "$-$",
        _NONE: "--",
        "Δ": r"$\Delta$",
        "ζ": r"$\zeta$",
        "λ": r"$\lambda$",
        "κ": r"$\kappa$",
        "β": r"$\beta$",
        "ε": r"$\varepsilon$",
        "τ": r"$\tau$",
        "²": r"$^2$",
        "±": r"$\pm$",
        "→": r"$\rightarrow$",
        "×": r"$\times$",
        "…": r"\ldots{}",
        "|": r"\textbar{}",
    }
)


@dataclass(frozen=True)
class Entry:
    """One entry: our number, the published one below it, and what to sort by."""

    text: str
    value: float | str | None = None
    published: str | None = None
    emphasis: str = ""
    """`good`, `bad` or nothing: how the entry is coloured."""


@dataclass(frozen=True)
class Column:
    """A column's heading and what it means."""

    label: str
    about: str = ""
    numeric: bool = True


Row = dict[Column, Entry]


@dataclass(frozen=True)
class Table:
    """A titled table; every row has the same columns."""

    id: str
    title: str
    caption: str
    rows: Sequence[Row]
    section: str = ""
    folded: bool = False
    """Whether the report shows it only when asked."""

    @property
    def columns(self) -> list[Column]:
        """The columns of every row."""
        return list(self.rows[0]) if self.rows else []


NOTHING = Entry(_NONE)
"""An entry without a number."""


def number(value: float, digits: int = 2, *, sign: bool = False) -> Entry:
    """Show a number, a dash where there is none."""
    return Entry(show(value, digits, sign=sign), value) if math.isfinite(value) else NOTHING


def show(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number with thousands separated and a real minus."""
    if not math.isfinite(value):
        return _NONE
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    if float(text.replace(",", "")) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", _MINUS)


def p_value(value: float | None) -> Entry:
    """Show a p-value; very small ones are not worth their digits."""
    if value is None:
        return NOTHING
    return Entry("<0.001", value) if value < 0.001 else number(value, 3)


def show_interval(estimate: Estimate, digits: int = 2, *, sign: bool = False) -> str:
    """Write an estimate with its interval if it has one."""
    text = show(estimate.value, digits, sign=sign)
    if estimate.interval is None:
        return text
    low, high = (show(bound, digits) for bound in estimate.interval)
    return f"{text} [{low}, {high}]"


def digits_for(value: float) -> int:
    """Choose decimals so that about four figures are shown."""
    return 1 if abs(value) >= 100 else 2


def to_html(table: Table) -> str:
    """Write a table whose columns can be sorted."""
    head = "".join(
        f'<th scope="col"{_attribute("class", "num" if column.numeric else "")}'
        f'{_attribute("title", column.about)}><button type="button">'
        f'{escape(column.label)}<span class="arrow" aria-hidden="true"></span></button></th>'
        for column in table.columns
    )
    body = "".join(
        f"<tr>{''.join(_html_entry(*cell, i) for i, cell in enumerate(row.items()))}</tr>\n"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table id="table-{escape(table.id)}" class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def to_markdown(table: Table) -> str:
    """Write a table in Markdown, published numbers in brackets."""
    texts = _texts(table, "(paper {})")
    head, *rows = ("| " + " | ".join(map(markdown_text, line)) + " |" for line in texts)
    rule = "|" + "|".join("--:" if column.numeric else ":--" for column in table.columns) + "|"
    return "\n".join([f"## {table.title}", "", table.caption, "", head, rule, *rows, ""])


def to_latex(table: Table) -> str:
    """Write a table for LaTeX's booktabs."""
    columns = "".join("r" if column.numeric else "l" for column in table.columns)
    texts = _texts(table, "({})")
    head, *rows = (f"    {' & '.join(map(_tex, line))} \\\\\n" for line in texts)
    return rf"""\begin{{table}}
  \centering\small
  \caption{{{_tex(table.title)}. {_tex(table.caption)}}}
  \label{{tab:{table.id}}}
  \begin{{tabular}}{{{columns}}}
    \toprule
{head}    \midrule
{"".join(rows)}    \bottomrule
  \end{{tabular}}
\end{{table}}
"""


def _html_entry(column: Column, entry: Entry, place: int) -> str:
    tag = "td" if place else 'th scope="row"'
    value = "" if entry.value is None else escape(str(entry.value))
    below = f"<small>{escape(entry.published)}</small>" if entry.published is not None else ""
    css = _attribute("class", f"{'num' if column.numeric else ''} {entry.emphasis}".strip())
    return f'<{tag}{css} data-value="{value}">{escape(entry.text)}{below}</{tag[:2]}>'


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


def _texts(table: Table, form: str) -> list[list[str]]:
    """Give the headings and the rows as text, each published number in some form after ours."""

    def text(entry: Entry) -> str:
        if entry.published in (None, PUBLISHED_BELOW):
            return entry.text
        steps = entry.published.startswith(PUBLISHED_BELOW)  # what stands below a task's name
        return f"{entry.text} {('({})' if steps else form).format(entry.published)}"

    heads = [column.label for column in table.columns]
    return [heads, *([text(entry) for entry in row.values()] for row in table.rows)]


def markdown_text(text: str) -> str:
    """Escape what Markdown or HTML would take for markup."""
    escaped = escape(text, quote=False).replace("|", "\\|")
    return escaped.replace("[", "\\[").replace("]", "\\]").replace("\n", " ")


def _tex(text: str) -> str:
    return text.translate(_TEX_SIGNS)
