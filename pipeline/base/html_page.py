"""One self-contained HTML page: no scripts, fonts or pictures from anywhere.

What a page shows may come from strangers: it is escaped where it is put into the page, and the
page's policy allows a browser nothing but the style sheet inside.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

_STYLE = """
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


def policy(style: str = "") -> str:
    """The content security policy of a page with this style sheet: nothing may load or run."""
    digest = base64.b64encode(hashlib.sha256(f"{_STYLE}{style}".encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def whole_page(title: str, body: str, style: str = "") -> str:
    """The page; title: text; body: HTML; style: rules besides those that all pages have."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(style)}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body>\n"
        f"{body}\n</body></html>\n"
    )
