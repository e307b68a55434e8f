"""Checks one lowering against eager CPU PyTorch, through op_tool (no torch integration involved).

    from opcheck import check, check_error
    check("aten::add.Tensor", torch.randn(2, 3), torch.randn(3), alpha=2)

`check` records the call as the recorder does (argument names, baked and run-time numbers),
compares the row's type rule with eager's result types, runs the lowering on the real CPU plugin
and compares values.
OP_TOOL names the op_tool binary (default: the newest in build/).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_pjrt import plugins
from torch_pjrt.plugins import Plugin

DTYPES = {
    torch.bool: "pred", torch.uint8: "u8", torch.int8: "s8", torch.int16: "s16", torch.int32: "s32",
    torch.int64: "s64", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip
BY_NAME = {v: k for k, v in DTYPES.items()}
ERRORS = [RuntimeError, IndexError, TypeError, ValueError, NotImplementedError]
SKIPPED = ("Layout", "Device", "MemoryFormat", "Generator")


class ToolError(Exception):
    """What op_tool answered instead of a result."""


class Tool:
    """op_tool over a CPU plugin: the one that programs use (torch_pjrt/plugins.py)."""

    def __init__(self, path: str, plugin: Plugin | None = None) -> None:
        self.plugin = plugin or plugins.find_cpu()
        self.process = subprocess.Popen(
            [path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TORCH_PJRT_TEST_PLUGIN": self.plugin.library},
        )
        self.rows: dict[str, dict[str, str]] = {}
        self.start(self.plugin.compile_options, self.plugin.mistakes)

    def start(self, options: Mapping[str, object], mistakes: Sequence[str] | None) -> None:
        """The plugin anew, with these compile options and workarounds (None: all)."""
        self.send("plugin\n")
        for name, v in options.items():
            kind = "bool" if isinstance(v, bool) else "int" if isinstance(v, int) else "text"
            self.send(f"option {name} {kind} {int(v) if kind == 'bool' else v}\n")
        if mistakes is not None:
            self.send("".join(f"mistake {m}\n" for m in mistakes or ["none"]))

    def run_module(
        self, text: str, args: list[torch.Tensor], types: list[str]
    ) -> list[torch.Tensor]:
        """A StableHLO program's results; `types` are theirs."""
        data = text.encode()
        self.send(f"module {len(data)}\n")
        self.send(data)
        for a in args:
            raw = to_bytes(a)
            self.send(f"tensor - {type_text(a)} {len(raw)}\n")
            self.send(raw)
        self.send(f"types {' '.join(types)}\nrun\n")
        return self.outputs()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def send(self, data: str | bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data.encode() if isinstance(data, str) else data)

    def head(self) -> tuple[str, int]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        if not line:
            raise ToolError("op_tool died")
        return line[0].decode(), int(line[1])

    def bytes(self, n: int) -> bytes:
        assert self.process.stdout
        return self.process.stdout.read(n)

    def text(self) -> str:
        word, n = self.head()
        text = self.bytes(n).decode()
        if word != "ok":
            raise ToolError(text)
        return text

    def row(self, name: str) -> dict[str, str]:
        if name not in self.rows:
            self.send(f"row {name}\n")
            lines = self.text().split("\n")
            fields = dict(line.partition(" ")[::2] for line in lines[1:])
            self.rows[name] = fields | {"rule": lines[0]}
        return self.rows[name]

    def outputs(self) -> list[torch.Tensor]:
        word, n = self.head()
        if word != "ok":
            raise ToolError(self.bytes(n).decode())
        out = []
        for _ in range(n):
            assert self.process.stdout
            text, size = self.process.stdout.readline().split()
            out.append(from_bytes(text.decode(), self.bytes(int(size))))
        return out


_tool: Tool | None = None


def tool_path() -> str | None:
    """OP_TOOL, else that of the checkout's fastest build."""
    if "OP_TOOL" in os.environ:
        return os.environ["OP_TOOL"]
    build = Path(__file__).parents[2] / "build"
    built = [p for b in ("dev", "release", "asan") if (p := build / b / "op_tool").exists()]
    return str(built[0]) if built else None


def tool() -> Tool:
    global _tool
    if _tool is None or _tool.process.poll() is not None:
        path = tool_path()
        if path is None:
            raise ToolError("op_tool is not built: cmake -DTP_BUILD_TESTS=ON, or set OP_TOOL")
        _tool = Tool(path)
    return _tool


def type_text(t: torch.Tensor | None) -> str:
    return "-" if t is None else f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]"


def to_bytes(t: torch.Tensor) -> bytes:
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if not t.numel():
        return b""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def from_bytes(text: str, data: bytes) -> torch.Tensor:
    name, _, dims = text[:-1].partition("[")
    shape = [int(d) for d in dims.split(",") if d]
    if not data:
        return torch.empty(shape, dtype=BY_NAME[name])
    return torch.frombuffer(bytearray(data), dtype=BY_NAME[name]).reshape(shape)


def overload(name: str) -> Any:
    base, _, which = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(schema argument, value), defaults filled in."""
    out = []
    args_left = list(args)
    for a in schema.arguments:
        if args_left and not a.kwarg_only:
            out.append((a, args_left.pop(0)))
        elif a.name in kwargs:
            out.append((a, kwargs[a.name]))
        else:
            out.append((a, a.default_value))
    return out


def number_line(name: str, v: Any, mark: str = "wrapped") -> str:
    if isinstance(v, bool):
        return f"number {name} bool {int(v)} {mark}\n"
    if isinstance(v, int):
        return f"number {name} int {v} {mark}\n"
    if isinstance(v, complex):
        return f"number {name} complex {v.real!r} {v.imag!r} {mark}\n"
    return f"number {name} float {v!r} {mark}\n"


def attr_line(name: str, v: Any) -> str:
    if isinstance(v, bool):
        return f"bool {name} {int(v)}\n"
    if isinstance(v, int):
        return f"int {name} {v}\n"
    return f"float {name} {float(v)!r}\n"


def unit_default(a: Any) -> bool:
    """alpha, beta, value: the recorder leaves out a 1."""
    return isinstance(a.default_value, int) and a.default_value == 1


def send_argument(t: Tool, a: Any, v: Any, row: dict[str, str]) -> None:
    kind = str(a.real_type).removeprefix("Optional[").removesuffix("]").removesuffix("?")
    if kind in SKIPPED or a.name == "pin_memory":
        return
    if v is None:
        t.send(f"none {a.name}\n")
    elif isinstance(v, torch.Tensor):
        data = to_bytes(v)
        t.send(f"tensor {a.name} {type_text(v)} {len(data)}\n")
        t.send(data)
    elif kind == "Tensor":
        t.send(number_line(a.name, v))
    elif isinstance(v, (list, tuple)) and (
        "Tensor" in kind or any(isinstance(x, torch.Tensor) for x in v)
    ):
        t.send(f"tensors {a.name} {len(v)}\n")
        for x in v:
            data = b"" if x is None else to_bytes(x)
            t.send("-\n" if x is None else f"{type_text(x)} {len(data)}\n")
            t.send(data)
    elif kind in ("number", "Scalar") and unit_default(a) and type(v) is int and v == 1:
        t.send(f"none {a.name}\n")
    elif kind in ("number", "Scalar"):
        t.send(attr_line(a.name, v) if a.name in row["baked"].split() else number_line(a.name, v))
    elif kind in ("ScalarType", "dtype"):
        t.send(
            f"dtype {a.name} {DTYPES[v] if isinstance(v, torch.dtype) else DTYPES[code_dtype(v)]}\n"
        )
    elif isinstance(v, str):
        t.send(f"text {a.name} {v}\n")
    elif kind == "float":
        v = float(v)
        t.send(number_line(a.name, v) if a.name in row["numbers"].split() else attr_line(a.name, v))
    elif isinstance(v, (list, tuple)):
        word = "bools" if "bool" in kind else "floats" if "float" in kind else "ints"
        t.send(
            f"{word} {a.name} {' '.join(repr(x) if word == 'floats' else str(int(x)) for x in v)}\n"
        )
    else:
        # a bare int given for a list (dim=1) is a list of one
        t.send(
            f"ints {a.name} {int(v)}\n"
            if "[" in kind or kind.startswith("List")
            else attr_line(a.name, v)
        )


def code_dtype(code: int) -> torch.dtype:
    """The dtype of a ScalarType's number, as defaults carry it."""
    names = ["u8", "s8", "s16", "s32", "s64", "f16", "f32", "f64", "-", "c64", "c128", "pred"]
    return torch.bfloat16 if code == 15 else BY_NAME[names[code]]


def flat(result: Any) -> list[torch.Tensor | None]:
    items = list(result) if isinstance(result, (tuple, list)) else [result]
    out: list[torch.Tensor | None] = []
    for r in items:
        out.extend(flat(r) if isinstance(r, (list, tuple)) else [r])
    return out


def eager(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor | None]:
    """Eager's results, then the written arguments of the row (running statistics), as recorded."""
    op = overload(name)
    writes = tool().row(name)["writes"].split()
    args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    out = flat(op(*args, **kwargs))
    by_name = {a.name: v for a, v in arguments(op._schema, args, kwargs)}
    return out + [by_name[w] for w in writes]


def send_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tool:
    t = tool()
    row = t.row(name)
    t.send(f"op {name}\n")
    extra = {
        k: kwargs.pop(k) for k in ("seed", "offset") if row["special"] == "random" and k in kwargs
    }
    for a, v in arguments(overload(name)._schema, args, kwargs):
        send_argument(t, a, v, row)
    for k, v in extra.items():
        t.send(number_line(k, v, "plain"))
    return t


def run(name: str, *args: Any, types: list[str] | None = None, **kwargs: Any) -> list[torch.Tensor]:
    """The lowering's outputs, without a comparison (random ops). No `types`: the row's rule."""
    t = send_call(name, args, dict(kwargs))
    if types is not None:
        t.send(f"types {' '.join(types)}\n")
    t.send("run\n")
    return t.outputs()


def text(name: str, *args: Any, **kwargs: Any) -> str:
    """The module text of the call."""
    want = eager(name, args, kwargs)
    t = send_call(name, args, dict(kwargs))
    t.send(f"types {' '.join(map(type_text, want))}\nlower\n")
    return t.text()


def check(
    name: str, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any
) -> None:
    """Type rule, lowering and values of one call against eager."""
    want = eager(name, args, kwargs)
    t = send_call(name, args, dict(kwargs))
    types = list(map(type_text, want))
    if t.row(name)["rule"] == "rule":
        t.send("infer\n")
        found = t.text().split()
        assert found == types, f"{name}: type rule gives {found}, eager {types}"
    t.send(f"types {' '.join(types)}\nrun\n")
    got = t.outputs()
    for i, (g, w) in enumerate(zip(got, [w for w in want if w is not None], strict=True)):
        w = w.detach().resolve_conj().resolve_neg()
        try:
            torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as e:
            raise AssertionError(f"{name} output {i}: {differences(g, w)} {e}") from None


def differences(got: torch.Tensor, want: torch.Tensor) -> str:
    """The first places that differ: index, found, eager's."""
    bad = ~torch.isclose(got, want, equal_nan=True) if got.shape == want.shape else torch.ones(0)
    places = bad.nonzero()[:4].tolist()
    return "; ".join(
        f"{p}: {got[tuple(p)].item()!r}, eager {want[tuple(p)].item()!r}" for p in places
    )


def check_error(name: str, *args: Any, **kwargs: Any) -> None:
    """The row's type rule raises what eager raises: type and first line."""
    try:
        overload(name)(*args, **kwargs)
    except Exception as e:
        want = e
    else:
        raise AssertionError(f"{name}: eager raises nothing")
    t = send_call(name, args, dict(kwargs))
    t.send("infer\n")
    try:
        found = t.text()
    except ToolError as e:
        code, _, message = str(e).partition(" ")
        kinds = {
            0: RuntimeError,
            1: IndexError,
            2: TypeError,
            3: ValueError,
            4: NotImplementedError,
        }
        first = str(want).split("\n")[0]
        assert kinds.get(int(code)) is type(want), (
            f"{name}: kind {code}, eager {type(want)}: {message}"
        )
        assert message.split("\n")[0] == first, f"{name}: says {message!r}, eager {first!r}"
    else:
        raise AssertionError(f"{name}: eager raises {want!r}, the rule gives {found}")
