"""Our hand-written CompileOptionsProto against what jaxlib's protobuf writes and reads."""

import pytest

from torch_pjrt import _C

jax = pytest.importorskip("jaxlib._jax")

OVERRIDES = {
    "xla_cpu_enable_fast_min_max": False,
    "xla_allow_excess_precision": False,
    "xla_text": "a,b",
    "xla_number": 3,
    "xla_negative": -1,
    "xla_real": 1.5,
}


def decode(data: bytes) -> dict[int, list[bytes | int]]:
    """Field number -> values, of a protobuf message."""
    fields: dict[int, list[bytes | int]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            value: bytes | int = varint()
        else:
            size = {1: 8, 5: 4}.get(wire) or varint()
            value, at = data[at : at + size], at + size
        fields.setdefault(number, []).append(value)
    return fields


def theirs(**build) -> object:
    """Options made by jaxlib."""
    o = jax.CompileOptions()
    o.executable_build_options.num_replicas = 1
    o.executable_build_options.num_partitions = 1
    for name, value in build.items():
        setattr(o.executable_build_options, name, value)
    return o


def test_overrides_are_byte_for_byte_the_same():
    o = theirs()
    o.env_option_overrides = list(OVERRIDES.items())
    ours = decode(_C.encode_compile_options({"overrides": OVERRIDES}))
    assert ours[7] == sorted(decode(o.SerializeAsString())[7], key=lambda b: decode(b)[1][0])


@pytest.mark.parametrize(
    "build",
    [
        {},
        {"num_replicas": 2},
        {"num_partitions": 8, "use_spmd_partitioning": True},
        {"num_partitions": 4, "use_spmd_partitioning": True, "use_shardy_partitioner": True},
        {"num_partitions": 2, "use_spmd_partitioning": True, "use_auto_spmd_partitioning": True},
    ],
    ids=str,
)
def test_build_options_are_the_same_where_we_set_them(build):
    ours = decode(decode(_C.encode_compile_options(build))[3][0])
    wanted = decode(decode(theirs(**build).SerializeAsString())[3][0])
    assert {k: wanted.get(k) for k in ours} == ours
    # what we leave out is protobuf's default, or jaxlib's debug options
    written = {4: "num_replicas", 5: "num_partitions", 6: "use_spmd_partitioning"}
    assert set(written) - ours.keys() <= {6}


def test_jaxlib_reads_what_we_write():
    made = _C.encode_compile_options(
        {"num_replicas": 1, "num_partitions": 2, "device_ids": [3, 5], "overrides": OVERRIDES}
    )
    read = jax.CompileOptions.ParseFromString(made)
    assert read.executable_build_options.num_partitions == 2
    assert read.executable_build_options.device_assignment.replica_count() == 1
    assert dict(read.env_option_overrides) == OVERRIDES


def test_equal_options_give_equal_bytes():
    backwards = dict(reversed(OVERRIDES.items()))
    encode = _C.encode_compile_options
    assert encode({"overrides": OVERRIDES}) == encode({"overrides": backwards})


def test_missing_counts_never_leave_the_process():
    with pytest.raises(ValueError, match="at least one"):
        _C.encode_compile_options({"num_replicas": 0})


@pytest.mark.parametrize(("level", "number"), [(0, None), (9, [9]), (19, [19]), (39, [39])])
def test_an_optimization_level_is_written_where_there_is_one(level, number):
    ours = decode(decode(_C.encode_compile_options({"optimization_level": level}))[3][0])
    assert ours.get(24) == number
