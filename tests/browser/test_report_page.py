"""The report as a reader sees it: phone, tablet and desktop, light and dark.

Chromium shows the page in a frame of each width. A script around the frame, which is not part of
the page, measures it; screenshots show whether the curves have ink.
"""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipeline.reporting.renderings import as_page
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import Score
from pipeline.reporting.sections import make_report
from tests.pipeline.reporting.small_runs import write_run

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium")
WIDTHS = (375, 768, 1280)
THEMES = {"light": 1, "dark": 0}
"""Blink's numbers of preferred colours."""
HEIGHT = 12000
PICTURES = Path(__file__).parents[2] / "build" / "browser"
MOST_SECONDS = 60
LONG = "a-run-whose-name-" + "is-long-" * 12

HARNESS = """<!doctype html><style>body { margin: 0 } iframe { border: 0; display: block }</style>
<iframe id="frame" src="PAGE" width="WIDTH" height="HEIGHT"></iframe><script>
frame.onload = () => {
  const page = frame.contentDocument, found = {wide: [], outside: [], colours: {}, curves: 0};
  found.page = [page.documentElement.scrollWidth, page.documentElement.clientWidth];
  found.height = page.documentElement.scrollHeight;
  for (const element of page.body.querySelectorAll("*:not(svg *)")) {
    const scrolls = getComputedStyle(element).overflowX == "auto";
    if (element.clientWidth && element.scrollWidth > element.clientWidth + 1 && !scrolls)
      found.wide.push(element.outerHTML.slice(0, 200));
  }
  for (const plot of page.querySelectorAll("svg.plot")) {
    const frame = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1
          || box.height < 8) found.outside.push(text.textContent);
    }
    for (const curve of plot.querySelectorAll("path[class^=s], circle")) {
      const box = curve.getBoundingClientRect(), style = getComputedStyle(curve);
      found.curves += 1;
      if (box.width + box.height < 2 || style.stroke == "none") found.wide.push(curve.outerHTML);
      found.colours[style.stroke] = true;
    }
  }
  document.body.append(Object.assign(document.createElement("pre"),
    {id: "found", hidden: true, textContent: JSON.stringify(found)}));
};
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of pages of one run and of three, served on loopback."""
    folder = tmp_path_factory.mktemp("site")
    runs = [write_run(folder / name, steps=3000) for name in ("first", LONG, "third")]
    scores = [Score("a-model-" * 12, "sst2: accuracy", 0.8, 0.7, 0.9, "fine-tuned, 5 seeds")]
    for name, shown in (("one", runs[:1]), ("three", runs)):
        report = make_report([read_run(run) for run in shown], scores, "python -m x " + "y" * 200)
        (folder / f"{name}.html").write_text(as_page(report))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


def chromium(profile: Path, theme: str, width: int, *arguments: str) -> str:
    assert CHROMIUM, "install Chromium: apt-get install chromium"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    result = subprocess.run(
        [CHROMIUM, "--headless=new", *sandbox, "--disable-gpu", f"--user-data-dir={profile}",
         f"--blink-settings=preferredColorScheme={THEMES[theme]}", "--hide-scrollbars",
         f"--window-size={max(width, 600)},{HEIGHT}", "--virtual-time-budget=10000",
         "--disable-background-networking", "--no-first-run", *arguments],
        capture_output=True, text=True, timeout=MOST_SECONDS, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", ["one", "three"])
def test_nothing_overflows_and_every_curve_has_ink(
    page: str, width: int, theme: str, site: tuple[str, Path], tmp_path: Path
) -> None:
    address, folder = site
    harness = HARNESS.replace("PAGE", f"{page}.html").replace("WIDTH", str(width))
    (folder / "harness.html").write_text(harness.replace("HEIGHT", str(HEIGHT)))
    url = f"{address}/harness.html"
    dumped = chromium(tmp_path / "profile", theme, width, "--dump-dom", url)
    (content,) = re.findall(r'<pre id="found"[^>]*>(.*?)</pre>', dumped, re.S)
    found: dict[str, Any] = json.loads(unescape(content))
    assert found["page"][0] <= found["page"][1] == width
    assert found["height"] < HEIGHT + 1
    assert found["wide"] == [] and found["outside"] == []
    assert found["curves"] > 10
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"report-{page}-{width}-{theme}.png"
    chromium(tmp_path / "profile", theme, width, f"--screenshot={picture}", url)
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    is_dark = pixels[2, 2].mean() < 128
    assert is_dark == (theme == "dark")
    for colour in found["colours"]:
        wanted = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]])
        assert ink(pixels, wanted) > 20, f"{colour} is not on the page"


def ink(pixels: npt.NDArray[np.uint8], colour: npt.NDArray[np.int64]) -> int:
    """Pixels that are at least half of a colour, the rest of them being the page's own."""
    paper = pixels[2, 2].astype(float)
    towards = colour - paper
    away = pixels.reshape(-1, 3) - paper
    share = away @ towards / (towards @ towards)
    rest = np.abs(away - share[:, None] * towards).max(1)
    return int(((share > 0.5) & (share < 1.1) & (rest <= 16)).sum())
