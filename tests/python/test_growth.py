"""What a process remembers stays bounded where shapes never repeat."""

SHAPES = """
import torch, torch_pjrt
from torch_pjrt import _C
x = torch.ones(20_001).to("xla")
y = x[:10] + 1
seen = []
for i in range(1, 20_001):
    y = x.narrow(0, 0, i).reshape(1, i) * 2 + 1
    if i % 1000 == 0:
        del y
        torch_pjrt.sync()  # nothing is left to run
        seen.append(_C.live_types())
print(seen)
assert seen[-1] < 6_000, seen
assert max(seen[-5:]) - min(seen[-5:]) < 20, seen
assert (x[:3] + 1).tolist() == [2, 2, 2]
"""


def test_20000_shapes_leave_no_types_behind(run_python):
    done = run_python(code=SHAPES, XLA_IR_SHAPE_CACHE_SIZE="256")
    assert done.returncode == 0, done.stdout + done.stderr
