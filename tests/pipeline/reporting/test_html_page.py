"""A page carries its own style sheet, and a policy that allows a browser nothing else."""

import base64
import hashlib
import re

from pipeline.reporting.renderings import policy, whole_page


def test_the_policy_names_the_style_sheet() -> None:
    page = whole_page("a <b> & c", "<p>text</p>", "p { color: red }\n")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    assert style.endswith("p { color: red }\n")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    start = f"default-src 'none'; style-src 'sha256-{digest}';"
    assert policy("p { color: red }\n").startswith(start)
    assert policy("p { color: red }\n") in page and policy() not in page
    assert "<title>a &lt;b&gt; &amp; c</title>" in page
