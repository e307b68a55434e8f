"""torch.xla answers code written for torch.cuda: events, streams, memory, what a device is."""

import pytest
import torch

import torch_pjrt


def busy(n: int = 400) -> torch.Tensor:
    x = torch.rand(n, n, device="xla")
    for _ in range(20):
        x = torch.tanh(x @ x / n)
    return x


@pytest.mark.parametrize("make", [torch.xla.Event, lambda **k: torch.Event("xla", **k)])
def test_event_marks_what_was_recorded_before_it(make):
    y = busy()
    event = make()
    assert event.query()  # never recorded
    event.record()
    assert torch_pjrt.state(y) == "device"  # launched
    event.synchronize()
    assert event.query()
    assert y.isfinite().all()


def test_elapsed_time_is_that_of_the_work_between():
    busy().cpu()  # compiled
    start, middle, end = (torch.xla.Event(enable_timing=True) for _ in range(3))
    start.record()
    middle.record()
    y = busy()
    end.record()
    end.synchronize()
    assert end.elapsed_time(end) == 0
    assert 0 <= start.elapsed_time(middle) <= start.elapsed_time(end)
    assert middle.elapsed_time(end) > 0.1  # milliseconds: 20 products of 400 x 400
    del y


def test_event_may_be_recorded_again():
    event = torch.xla.Event(enable_timing=True)
    for _ in range(3):
        kept = busy(50)
        event.record()
    event.synchronize()
    assert event.query()
    del kept


def test_elapsed_time_of_an_event_without_a_mark_is_refused():
    a, b = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    a.record()
    with pytest.raises((RuntimeError, ValueError), match="record"):
        a.elapsed_time(b)


def test_failure_of_a_program_stays_with_its_tensors():
    with torch_pjrt.no_cuts():
        bad = torch.linalg.cholesky(-torch.eye(300, device="xla"))
    event = torch.xla.Event()
    try:
        event.record()
    except torch.linalg.LinAlgError:  # known at the sync
        event.record()
    event.synchronize()
    assert event.query()
    with pytest.raises(torch.linalg.LinAlgError):
        bad.cpu()


def test_all_streams_are_the_devices_queue():
    s = torch.xla.Stream()
    assert s == torch.xla.current_stream() == torch.xla.default_stream()
    assert s.device == torch.device("xla:0")
    plain = torch.Stream(device="xla")
    assert plain.device.type == "xla"
    y = busy(50)
    assert not s.query()  # recorded, not run
    with torch.xla.stream(s):
        z = y + 1
    s.synchronize()
    assert s.query() and plain.query()
    assert torch_pjrt.state(z) == "device"


def test_streams_order_by_events_as_code_for_cuda_does():
    main, side = torch.xla.current_stream(), torch.xla.Stream()
    side.wait_stream(main)
    with torch.xla.stream(side), side:
        y = busy(50)
        event = side.record_event()
    main.wait_event(event)
    event.wait(main)
    event.record(main)
    assert isinstance(event, torch.xla.Event)
    main.synchronize()
    assert event.query()
    y.record_stream(main)
    torch.xla.set_stream(side)


def test_memory_is_told():
    torch_pjrt.sync(wait=True)
    before = torch.xla.memory_allocated()
    x = torch.rand(256, 256, device="xla")
    torch_pjrt.sync(wait=True)
    assert torch.xla.memory_allocated() - before == 256 * 256 * 4
    assert torch.xla.max_memory_allocated() >= torch.xla.memory_allocated()
    assert torch.xla.memory_reserved() > 0 and torch.xla.max_memory_reserved() > 0
    free, total = torch.xla.mem_get_info()
    assert 0 < free <= total
    assert "live_bytes" in torch.xla.memory_summary()
    torch.xla.reset_peak_memory_stats()
    torch.xla.empty_cache()
    del x


def test_a_device_is_described():
    p = torch.xla.get_device_properties()
    assert p.name == torch.xla.get_device_name("xla:0")
    assert p.platform == "cpu" and p.total_memory > 0 and p.multi_processor_count > 0
    assert torch.xla.get_device_capability(0) == (p.major, p.minor)
    assert torch.xla.is_bf16_supported()
    assert not torch.xla.is_current_stream_capturing()
    assert torch.xla.OutOfMemoryError is torch.OutOfMemoryError
    with torch.xla.device_of(torch.ones(1)), torch.xla.device_of(torch.ones(1, device="xla")):
        assert torch.xla.current_device() == 0
    with pytest.raises(ValueError, match="of type xla"):
        torch.xla.get_device_properties("cpu")
