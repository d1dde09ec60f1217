"""A report as one HTML page, and as text for a terminal.

The page is self-contained: no scripts, fonts or pictures from anywhere. What it shows may come from
strangers: it is escaped, and the page's policy allows a browser nothing but the style sheet inside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from pipeline.base.plots import STYLE, Plot, draw_plot, short_number
from pipeline.reporting.sections import Report, Section, TextTable, made_by

_PAGE_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #667; --paper: #fff; --line: #dde;
  --bar: #3b6fb6; --out: #c8772e; --box: #f5f6f9 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --soft: #99a; --paper: #16181d;
  --line: #333842; --bar: #6c9be0; --out: #e09a55; --box: #1f222a } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.soft { color: var(--soft) }
"""
_STYLE = (
    STYLE
    + """
.verdict { background: var(--box); border-left: 4px solid var(--bar); border-radius: 4px;
  padding: .6rem 1rem; margin: .8rem 0; overflow-wrap: anywhere }
.table { overflow-x: auto; margin: .6rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; min-width: 5rem }
th { overflow-wrap: break-word; color: var(--soft); font-weight: 600;
  border-bottom: 1px solid var(--line) }
pre { background: var(--box); padding: .6rem 1rem; border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere }
p { overflow-wrap: anywhere }
@media print { body { margin: 0; max-width: none } h2 { break-after: avoid } }
"""
)
_MOST_COLUMN = 60  # a longer cell runs over instead of widening the column for all


def as_page(report: Report) -> str:
    """One self-contained page; all text is escaped."""
    parts = [f"<h1>{escape(report.title)}</h1>"]
    parts += [f'<p class="verdict">{escape(line)}</p>' for line in report.verdicts]
    parts += [_html(section) for section in report.sections]
    parts.append(f'<p class="soft">{escape(made_by())}</p>')
    return whole_page(f"{report.title} · Tenfold", "\n".join(parts), _STYLE)


def as_text(report: Report) -> str:
    """The same for a terminal; a curve is its first, lowest, highest and last value."""
    lines = [*report.verdicts]
    for section in report.sections:
        lines += ["", section.title, *(f"  {line}" for line in section.lines)]
        for table in section.tables:
            lines += [f"  {line}" for line in _align(table)]
        if section.plots:
            lines += [f"  {line}" for line in _align(_values(section.plots))]
        lines += [f"  {command}" for command in section.commands]
    # without the codes that a terminal would obey
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _html(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(line)}</p>" for line in section.lines]
    parts += [_table(table) for table in section.tables]
    if section.plots:
        parts.append(f'<div class="plots">{"".join(map(draw_plot, section.plots))}</div>')
    parts += [f"<pre>{escape(command)}</pre>" for command in section.commands]
    return "\n".join(parts)


def _table(table: TextTable) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    head = f"<tr>{head}</tr>" if any(table.head) else ""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return f'<div class="table"><table>{head}{rows}</table></div>'


def _values(plots: Sequence[Plot]) -> TextTable:
    rows = []
    for plot in plots:
        for name, points in plot.series:
            if points:
                values = [value for _, value in points]
                ends = (values[0], min(values), max(values), values[-1])
                rows.append((plot.title, name, *map(short_number, ends)))
    return TextTable(("curve", "", "first", "lowest", "highest", "last"), rows)


def _align(table: TextTable) -> list[str]:
    rows = [table.head, *table.rows] if any(table.head) else [*table.rows]
    if not rows:
        return []
    widths = [
        min(_MOST_COLUMN, max(len(row[column]) for row in rows)) for column in range(len(rows[0]))
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def policy(style: str = "") -> str:
    """The content security policy of a page with this style sheet: nothing may load or run."""
    digest = base64.b64encode(hashlib.sha256(f"{_PAGE_STYLE}{style}".encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def whole_page(title: str, body: str, style: str = "") -> str:
    """The page; title: text; body: HTML; style: rules besides those that all pages have."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(style)}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}{style}</style></head>\n<body>\n"
        f"{body}\n</body></html>\n"
    )
