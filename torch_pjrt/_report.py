"""The report page: what happened, gathered as plain data, put into one self-contained HTML file."""

import datetime
import html
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from . import _C, _build_info, _findings, metrics
from ._explain import Compile, Explanation, Place, Read, explain, place
from .graph import Graph

__all__ = ["data", "findings", "frame", "graph_page", "notebook_frame", "write", "write_trace"]

_KEPT_GRAPHS = 12
Json = dict[str, Any]


@cache
def _template() -> str:
    return Path(__file__).with_name("report.html").read_text()


def _page(content: Json) -> str:
    # No tag of the page's may begin in the data: "</script>", "<!--", "<script".
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return _template().replace("/*DATA*/", text)


def _source(at: Place) -> Json:
    """The library's line where there is no other, else the user's own, which can be changed."""
    shown = at.own or at
    lines = shown.source() if shown.line else []
    return {"text": str(at), "line": shown.line, "lines": lines}


def _compile(c: Compile) -> Json:
    reasons = [
        {"kind": r.kind, "text": r.text, "source": _source(r.place)} for r in c.reasons[:8]
    ] + [{"kind": r.kind, "text": r.text} for r in c.reasons[8:20]]
    kept = "number seconds nodes key nearest site unexpected fresh interpreted"
    return {k: getattr(c, k) for k in kept.split()} | {"reasons": reasons}


def _read(r: Read) -> Json:
    return {
        "kind": r.kind,
        "text": str(r.place),
        "cuts": r.cuts,
        "reads": r.reads,
        "seconds": r.seconds,
        "source": _source(r.place),
    }


def _on_cpu(e: Explanation) -> Iterator[Json]:
    for name, count in sorted(e.on_cpu.items(), key=lambda item: -item[1]):
        plain = name.removeprefix("hostop::")
        lines = {str(p) for p in _findings.lines_on_cpu(e, name)}
        yield {
            "name": plain,
            "count": count,
            "host": name.startswith("hostop::"),
            "lines": sorted(lines),
        }


def _live() -> Iterator[Json]:
    before = _findings.earlier_census()
    for found, count, size in sorted(_C.live_lines(), key=lambda line: -line[2]):
        p = place(found)
        yield {
            "text": str(p),
            "count": count,
            "bytes": size,
            "growth": count - before.get((p.file, p.line), 0) if before is not None else 0,
            "source": _source(p),
        }


def _shardings(e: Explanation) -> Iterator[Json]:
    for s in e.shardings:
        yield {
            "text": str(s.place),
            "type": s.type,
            "count": s.count,
            "bytes": s.bytes,
            "spec": ", ".join("-" if a is None else str(a) for a in s.sharding.spec),
            "part": "whole" if s.sharding.replicated else str(list(s.sharding.shard_shape)),
            "mesh": str(s.sharding.mesh),
            "picture": s.sharding.visualize(),
            "source": _source(s.place),
        }


def _collectives(e: Explanation) -> Iterator[Json]:
    for c in e.collectives:
        kept = ("kind", "line", "count", "bytes", "key", "runs")
        yield {k: getattr(c, k) for k in kept}


def _graph(g: Graph, site: str = "") -> Json:
    nodes = [[n.id, n.name, n.args, n.attrs, n.type, n.where] for n in g]
    last = g.text.rstrip().rpartition("\n")[2].removeprefix("return ")
    roots = [int(r.strip("%").partition(".")[0]) for r in last.split(", ") if r.startswith("%")]
    return {"nodes": nodes, "roots": roots, "site": site}


def _graphs(e: Explanation) -> Json:
    """The graphs of the newest compiles, by the first 16 digits of their keys."""
    found: Json = {}
    for c in sorted([*e.compiles, *e.new_graphs], key=lambda c: c.number, reverse=True):
        if c.key[:16] not in found and (record := _C.graph_record(c.key)):
            found[c.key[:16]] = _graph(Graph(*record), c.site)
        if len(found) == _KEPT_GRAPHS:
            break
    return dict(sorted(found.items(), key=lambda item: -len(item[1]["nodes"])))


def _device() -> str:
    if not _C.client_exists():
        return ""
    info = _C.client_info()
    return f"{info['platform']} {info['platform_version']}".strip()


def findings() -> list[_findings.Finding]:
    """Known mistakes that the run shows."""
    return _findings.find(explain(), _C.step())


def data(title: str = "") -> Json:
    """Everything that the page shows."""
    e = explain()
    found = [f.as_json() | {"source": _source(f.place)} for f in _findings.find(e, _C.step())]
    return {
        "title": title or Path(sys.argv[0] or "python").name,
        "when": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        "torch": torch.__version__,
        "version": _build_info.VERSION,
        "device": _device(),
        "steps": _C.step(),
        "findings": found,
        "compiles": [_compile(c) for c in e.compiles],
        "interpreted": [_compile(c) for c in e.new_graphs],
        "reads": [_read(r) for r in e.reads],
        "on_cpu": list(_on_cpu(e)),
        "programs": _C.programs() if _C.client_exists() else [],
        "live": list(_live()),
        "shardings": list(_shardings(e)),
        "collectives": list(_collectives(e)),
        "events": [[p, round(a, 7), round(b, 7), *rest] for p, a, b, *rest in _C.timeline()],
        "graphs": _graphs(e),
        "metrics": metrics.report(),
    }


def write(path: Path, title: str = "") -> Path:
    """The page as a file."""
    path.write_text(_page(data(title)), encoding="utf-8")
    return path


def graph_page(g: Graph) -> str:
    """A page of one graph."""
    keys = [
        *("findings", "compiles", "reads", "on_cpu", "programs", "live", "events"),
        *("shardings", "collectives"),
    ]
    empty: Json = {k: [] for k in keys}
    return _page(
        empty
        | {
            "only_graph": True,
            "title": f"graph of {g.nodes} nodes",
            "when": "",
            "device": "",
            "torch": torch.__version__,
            "version": _build_info.VERSION,
            "steps": 0,
            "graphs": {(g.key[:16] or "graph"): _graph(g)},
            "metrics": "",
        }
    )


def frame(page: str, height: int = 640) -> str:
    """A page inside a notebook's output: in a frame, so that its style stays its own."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:{height}px;border:0" '
        'sandbox="allow-scripts"></iframe>'
    )


def notebook_frame() -> str:
    """The whole report inside a notebook's output."""
    return frame(_page(data("This notebook's run")))


_LANES = {"record": 1, "prepare": 1, "wait": 1, "lower": 2, "compile": 2, "execute": 3}


def write_trace(path: Path) -> Path:
    """The timeline in Chrome's trace format."""
    names = {1: "Python", 2: "compiler", 3: "device"}
    events: list[Json] = [
        {"ph": "M", "pid": 1, "tid": t, "name": "thread_name", "args": {"name": name}}
        for t, name in names.items()
    ]
    events += [
        {
            "ph": "X",
            "pid": 1,
            "tid": _LANES[phase],
            "name": phase,
            "ts": start * 1e6,
            "dur": (end - start) * 1e6,
            "args": {"step": step, "program": program},
        }
        for phase, start, end, step, program in _C.timeline()
    ]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return path
