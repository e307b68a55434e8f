"""The report: what it finds, and how the page looks in a real browser.

The browser is Debian's chromium; tools/system_packages.sh installs it where it may.
"""

import json
import re
import shutil
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest
import torch

import torch_pjrt
from torch_pjrt import _report

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium: `apt-get install chromium` (tools/system_packages.sh tries it)",
)
MISTAKES = ROOT / "examples/six_mistakes.py"
KINDS = {
    "growing shapes": "x.to",
    "baked number": "losses.topk(",
    "op on the CPU": "eigvalsh",
    "stray tensor": "scores.softmax(1)",
    "leak": "",
    "read in the loop": "loss.item()",
}


def page_data(html: str) -> dict:
    """What stands between the data element's tags."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory) -> Path:
    """The page of the example, made in a process of its own."""
    import os
    import sys

    path = tmp_path_factory.mktemp("report") / "six.html"
    done = subprocess.run(
        [sys.executable, str(MISTAKES), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """The page of a graph of more than 5,000 nodes."""
    x = torch.ones(4).to("xla")
    with torch_pjrt.no_cuts():  # nothing of it is run before
        for _ in range(2600):
            x = x.sin() + x
    path = tmp_path_factory.mktemp("graph") / "large.html"
    return torch_pjrt.graph.of(x).save(path)


# ---- what is found --------------------------------------------------------------------------


def test_the_report_finds_all_six_mistakes_at_their_lines(mistakes):
    found = page_data(mistakes.read_text())["findings"]
    lines = {f["kind"]: f["source"] for f in found}
    assert set(KINDS) <= set(lines), [(f["kind"], f["text"]) for f in found]
    for kind, code in KINDS.items():
        hit = dict(map(tuple, lines[kind]["lines"])).get(lines[kind]["line"], "")
        assert code in hit, (kind, lines[kind])


def test_each_mistake_of_the_example_is_found_once(mistakes):
    found = Counter(f["kind"] for f in page_data(mistakes.read_text())["findings"])
    assert {k: found[k] for k in KINDS} == dict.fromkeys(KINDS, 1), found


def test_the_mistakes_are_found_where_no_graph_is_compiled(run_python, tmp_path):
    page = tmp_path / "page.html"
    done = run_python(str(MISTAKES), str(page), TORCH_PJRT_TIERS="on")
    assert done.returncode == 0, done.stderr
    data = page_data(page.read_text())
    found = Counter(f["kind"] for f in data["findings"])
    assert {k: found[k] for k in KINDS} == dict.fromkeys(KINDS, 1), found
    assert len(data["interpreted"]) > len(data["compiles"])
    assert all(g["interpreted"] for g in data["interpreted"])


def test_a_sound_loop_has_no_findings(run_python):
    code = """
import torch, torch_pjrt
w = torch.ones(8, 8).to("xla")
for _ in range(40):
    w = (w @ w).softmax(1)
    torch_pjrt.sync()
print(len(torch_pjrt.explain.findings()), w.sum().item())
"""
    done = run_python(code=code)
    assert done.stdout.startswith("0 "), done.stdout + done.stderr


# ---- the file -------------------------------------------------------------------------------


def test_the_page_is_one_file_that_asks_nothing_of_the_network(mistakes):
    html = mistakes.read_text()
    without_data = re.sub(r'id="data">.*?</script>', "", html, flags=re.S)
    links = re.findall(r'(?:src|href)\s*=\s*"([^"]+)"|url\(([^)]+)\)|@import|fetch\(', without_data)
    assert links == [], links
    assert "http" not in without_data.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("title", ["</script><script>alert(1)</script>", "<!--<script>", "a<b"])
def test_text_from_the_user_cannot_end_the_data(title, tmp_path):
    html = torch_pjrt.explain.report(tmp_path / "x.html", title=title).read_text()
    data = re.search(r'id="data">(.*?)</script>\n', html, re.S)[1]
    assert "<" not in data, "no tag, no comment begins in the data"
    assert page_data(html)["title"] == title


def test_programs_come_with_memory_and_runs(mistakes):
    data = page_data(mistakes.read_text())
    largest = max(data["programs"], key=lambda p: p["nodes"])
    assert largest["memory"]["arguments"] > 0
    assert largest["memory"]["outputs"] > 0
    assert all(p["runs"] >= 1 for p in data["programs"])


def test_the_timeline_has_all_phases_in_order_of_time(mistakes):
    events = page_data(mistakes.read_text())["events"]
    phases = {e[0] for e in events}
    assert phases == {"record", "prepare", "lower", "compile", "execute", "wait"}
    assert all(start <= end for _, start, end, *_ in events)


def test_the_trace_is_what_chrome_reads(tmp_path, device):
    (torch.ones(3).to(device) + 1).cpu()
    trace = json.loads(torch_pjrt.explain.trace(tmp_path / "t.json").read_text())
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {"record", "execute", "wait"} <= {e["name"] for e in spans}
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)


def test_notebooks_show_the_page_in_a_frame(device):
    (torch.ones(3).to(device) + 1).cpu()
    shown = torch_pjrt.explain()._repr_html_()
    assert shown.startswith("<iframe")
    assert "sandbox=" in shown
    assert torch_pjrt.graph.of(torch.ones(2).to(device) + 1)._repr_html_().startswith("<iframe")


# ---- in the browser -------------------------------------------------------------------------


def open_page(page: Path, tmp_path: Path, script="", query="", width=1200, height=1500):
    """Opens the page, runs `script` in it; (the DOM, the screenshot's pixels, console errors)."""
    copy = tmp_path / "page.html"
    probe = "<script>{" + script + "}</script>"
    copy.write_text(page.read_text().replace("</body>", probe + "</body>"))
    shot = tmp_path / "shot.png"
    common = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path}/profile",
        f"--window-size={width},{height}",
        "--virtual-time-budget=4000",
    ]
    url = f"file://{copy}{query}"

    def go(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*common, *more, url], capture_output=True, text=True, timeout=120, check=False
        )

    dom = go("--dump-dom")
    go(f"--screenshot={shot}")
    errors = [x for x in dom.stderr.splitlines() if "CONSOLE" in x and "Uncaught" in x]
    return dom.stdout, pixels(shot), errors


def pixels(path: Path) -> list[bytes]:
    """Rows of RGB(A) bytes of an 8-bit PNG."""
    data = path.read_bytes()
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert (depth, data[:4]) == (8, b"\x89PNG")
    size = {2: 3, 6: 4}[colour]
    raw, at = b"", 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        raw += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride = zlib.decompress(raw), width * size
    rows, last = [], bytearray(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 :][:stride])
        for i in range(stride):
            left, up = row[i - size] if i >= size else 0, last[i]
            corner = last[i - size] if i >= size else 0
            if kind == 4:
                p = left + up - corner
                near = min((left, up, corner), key=lambda v, p=p: abs(p - v))
                row[i] = (row[i] + near) & 255
            elif kind:
                row[i] = (row[i] + (left, up, (left + up) // 2)[kind - 1]) & 255
        rows.append(bytes(row[j] for i in range(0, stride, size) for j in range(i, i + 3)))
        last = row
    return rows


def background(rows: list[bytes]) -> tuple[int, ...]:
    """The colour of most pixels."""
    counts = Counter(row[i : i + 3] for row in rows[::7] for i in range(0, len(row), 21))
    return tuple(counts.most_common(1)[0][0])


VIEWS = [
    "summary",
    "findings",
    "timeline",
    "compiles",
    "cuts",
    "programs",
    "memory",
    "cpu",
    "graph",
]
MEASURE = """
  const wide = document.documentElement.scrollWidth - innerWidth;
  document.body.dataset.overflow = String(wide);
"""


@browser
@pytest.mark.parametrize(
    ("theme", "width"), [("light", 1200), ("dark", 1200), ("light", 500), ("dark", 500)]
)
def test_every_view_shows_in_light_and_dark_wide_and_narrow(mistakes, tmp_path, theme, width):
    dom, rows, errors = open_page(
        mistakes, tmp_path, MEASURE, f"?theme={theme}", width=width, height=900
    )
    assert errors == []
    for view in VIEWS:
        assert f'<section id="{view}"' in dom, view
    assert re.search(r'data-overflow="(-?\d+)"', dom)[1] == "0", "the page is wider than the window"
    light = sum(background(rows)) > 3 * 128
    assert light == (theme == "light")
    assert len({row[i : i + 3] for row in rows[::5] for i in range(0, len(row), 15)}) > 20


@browser
def test_the_timeline_is_drawn_in_the_colours_of_its_phases(mistakes, tmp_path):
    script = """
      const c = document.querySelector('#timeline canvas'), g = c.getContext('2d');
      const d = g.getImageData(0, 0, c.width, c.height).data, seen = new Set();
      for (let i = 0; i < d.length; i += 4) seen.add([d[i], d[i + 1], d[i + 2]].join());
      const want = ['record', 'compile', 'execute', 'wait'].map((p) => {
        const h = getComputedStyle(document.documentElement).getPropertyValue('--' + p).trim();
        return [1, 3, 5].map((k) => parseInt(h.slice(k, k + 2), 16)).join(); });
      document.body.dataset.missing = want.filter((w) => !seen.has(w)).length;
    """
    dom, _, errors = open_page(mistakes, tmp_path, script, "?theme=light")
    assert errors == []
    assert 'data-missing="0"' in dom


@browser
def test_a_graph_of_five_thousand_nodes_is_searched_at_once(large, tmp_path):
    script = """
      const start = performance.now(), s = document.getElementById('search');
      s.value = 'sin %5'; s.dispatchEvent(new Event('input'));
      document.body.dataset.ms = Math.round(performance.now() - start);
      document.body.dataset.rows = document.querySelectorAll('#rows .row').length;
      document.body.dataset.found = document.getElementById('found').textContent;
      document.querySelector('#rows .row').click();
      document.body.dataset.node = document.getElementById('node').textContent;
    """
    dom, _, errors = open_page(large, tmp_path, script)
    assert errors == []
    assert int(re.search(r'data-ms="(\d+)"', dom)[1]) < 1000
    assert 0 < int(re.search(r'data-rows="(\d+)"', dom)[1]) < 60  # only what is in sight
    found, of = re.search(r'data-found="(\d+) of (\d+)"', dom).groups()
    assert 0 < int(found) < int(of)
    assert int(of) > 5000
    assert "aten::sin" in re.search(r'data-node="([^"]+)"', dom)[1]


@browser
def test_a_cut_opens_its_source(mistakes, tmp_path):
    script = """
      for (const row of document.querySelectorAll('#cuts tbody tr.go')) row.click();
      document.body.dataset.code = document.querySelector('#cuts').textContent;
    """
    dom, _, errors = open_page(mistakes, tmp_path, script)
    assert errors == []
    assert "losses.append(loss.item())" in re.search(r'data-code="([^"]+)"', dom)[1]


@browser
def test_a_program_leads_to_its_graph(mistakes, tmp_path):
    script = """
      const row = document.querySelector('#programs tbody tr.go'); row.click();
      const button = row.nextSibling.querySelector('button'); if (button) button.click();
      document.body.dataset.nodes = document.getElementById('found').textContent;
    """
    dom, _, errors = open_page(mistakes, tmp_path, script)
    assert errors == []
    assert re.search(r'data-nodes="\d+ of \d+"', dom)
    assert _report.data()["title"]
