"""No crossing to the plugin holds Python's lock (docs/seam.md)."""

import pytest
from fake_plugin import TICKING

CODE = """
x, z = torch.arange(4.0).to("xla"), torch.zeros(4).to("xla")
z.add_(1)
script("PJRT_Client_BufferFromHostBuffer:1=HANG 400")
first, start = ticks, time.perf_counter()
CROSSING
took, ticked = time.perf_counter() - start, ticks - first
assert plugin.fake_plugin_count(b"PJRT_Client_BufferFromHostBuffer") >= 1
print(f"{took:.2f} s, {ticked} ticks")
assert took >= 0.3, "it did not hang: nothing is shown"
assert ticked >= 5, (took, ticked)
"""
CROSSINGS = {
    "an upload while an op is recorded": "y = x + 1",
    "an upload into a window": "z[1:3].copy_(torch.ones(2))",
    "an upload for a picture of the graph": "torch_pjrt.graph.of(x)",
}


@pytest.mark.parametrize("crossing", CROSSINGS.values(), ids=CROSSINGS.keys())
def test_other_threads_go_on_during(crossing, run_fake):
    run_fake(TICKING + CODE.replace("CROSSING", crossing))
