"""The profiler: torch.profiler records, there is no server of its own."""

from .._names import later

_INSTEAD = "torch.profiler.profile(): it shows torch_pjrt's sections, compiles and launches"
trace = later("_XLAC.profiler.trace", _INSTEAD)
start_server = later("_XLAC.profiler.start_server", _INSTEAD)
