"""Reads the plugin's optimized program (a serialized HloModuleProtoWithConfig) into text.

Only the fields that people look at; the format is protobuf's, read without its library.
"""

from collections.abc import Iterator

__all__ = ["COLLECTIVES", "module_text"]

# Names of instructions; of one that is in two halves, without "-start" and "-done".
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)

Message = dict[int, list[int | bytes]]

_TYPES = {
    **{1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64"},
    **{10: "f16", 11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16"},
    **{17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn"},
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _read(data: bytes) -> Message:
    """Field number -> its values: numbers, or bytes of strings and messages."""
    fields: Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            fields.setdefault(number, []).append(value)
            continue
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[wire]
        fields.setdefault(number, []).append(data[at : at + size])
        at += size
    return fields


def _text(m: Message, number: int) -> str:
    return bytes(m[number][0]).decode(errors="replace") if number in m else ""


def _number(m: Message, number: int) -> int:
    value = m.get(number, [0])[0]
    return value if isinstance(value, int) else 0


def _numbers(m: Message, number: int) -> Iterator[int]:
    """A repeated number, packed or not."""
    for value in m.get(number, []):
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            yield one


def _messages(m: Message, number: int) -> Iterator[Message]:
    return (_read(value) for value in m.get(number, []) if isinstance(value, bytes))


def _shape(m: Message) -> str:
    kind = _TYPES.get(_number(m, 2), f"type{_number(m, 2)}")
    if kind == "tuple":
        return f"({', '.join(_shape(s) for s in _messages(m, 4))})"
    return f"{kind}[{','.join(str(d) for d in _numbers(m, 3))}]"


def _frames(module: Message) -> list[str]:
    """The user's "file:line" by number of a stack frame, the first being none.

    Newer XLA keeps them in tables of the module; older ones in each instruction.
    """
    index = next(_messages(module, 17), {})
    files = ["", *(bytes(f).decode(errors="replace") for f in index.get(1, []) if f)]
    places = ["", *(f"{files[_number(p, 1)]}:{_number(p, 3)}" for p in _messages(index, 3))]
    return ["", *(places[_number(f, 1)] for f in _messages(index, 4))]


def _where(meta: Message, frames: list[str]) -> str:
    if 3 in meta:
        return f"{_text(meta, 3)}:{_number(meta, 4)}"
    return frames[_number(meta, 15)]


def _instruction(m: Message, names: dict[int, str], frames: list[str], root: int) -> str:
    shape = next((_shape(s) for s in _messages(m, 3)), "")
    operands = ", ".join(f"%{names.get(i, i)}" for i in _numbers(m, 36))
    opcode = _text(m, 2)
    if opcode == "parameter":
        operands = str(_number(m, 9))
    elif opcode == "get-tuple-element":
        operands += f", index={_number(m, 13)}"
    mark = "ROOT " if _number(m, 35) == root else ""
    line = f"  {mark}%{_text(m, 1)} = {shape} {opcode}({operands})"
    for meta in _messages(m, 7):
        where = _where(meta, frames)
        line += f"  # {_text(meta, 2)} {where}".rstrip() if 2 in meta or where else ""
    return line


def _computation(m: Message, frames: list[str]) -> Iterator[str]:
    instructions = list(_messages(m, 2))
    names = {_number(i, 35): _text(i, 1) for i in instructions}
    yield f"%{_text(m, 1)} {{"
    yield from (_instruction(i, names, frames, _number(m, 6)) for i in instructions)
    yield "}"


def module_text(kind: str, data: bytes) -> str:
    """The program for people; empty where the plugin gave none or in a form unknown to us."""
    if not data or kind not in ("hlo", "hlo_with_config"):
        return ""
    module = _read(data)
    if kind == "hlo_with_config":
        module = next(_messages(module, 1), {})
    lines = [f"HloModule {_text(module, 1)}"]
    frames = _frames(module)
    for computation in _messages(module, 3):
        lines += ["", *_computation(computation, frames)]
    return "\n".join(lines)
