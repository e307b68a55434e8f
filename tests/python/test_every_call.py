"""Every entry of the C API fails, runs out of memory, or hangs, one call at a time, while a step
updates weights in place on two devices: what was readable stays readable, what was pending stays
pending, the error says all that is known, the next step works. One process goes through all of them
(tests/fakeplugin/faults.cpp lists the entries).
"""

import json
import re
from pathlib import Path

import pytest
from fake_plugin import PRELUDE, ROOT, TICKING, fake_env

CALLS = re.findall(r"WRAP\((PJRT_\w+)\)", Path(ROOT, "tests/fakeplugin/faults.cpp").read_text())
CALLS = sorted({c for c in CALLS if "Plugin_" not in c and "Client_Create" not in c})
TIMES = (1, 2, 3)  # which of the step's calls
VALUES = ("INTERNAL no such luck", "RESOURCE_EXHAUSTED no such luck", "HANG 150")
# Calls whose failure no step can hide, and those among them that belong to a program.
PROGRAM = ("PJRT_Client_Compile", "PJRT_LoadedExecutable_Execute")
LOUD = (*PROGRAM, "PJRT_Client_BufferFromHostBuffer")

CODE = """
import json

def tell(f):
    try:
        return [f(), ""]
    except Exception as e:
        return [None, f"{type(e).__name__}: {e}"]

def scenario(call, value, at, n):
    # A step that updates weights in place on two devices, with a view, a host op and leaf fills.
    def full(v, where="xla:0"):
        return torch.full((n,), v).to(where)
    a = torch.arange(float(n)).to("xla:0") ; b = full(1.0) ; far = full(5.0, "xla:1")
    c = (a + 1).relu() ; w = full(2.0) ; head = w[1:3] ; moment = full(6.0, "xla:1") + 0
    torch_pjrt.sync(wait=True)
    y = a * b ; late = full(3.0)
    zeros = torch.zeros(n + 1, device="xla:0") ; sevens = torch.full((n,), 7.0, device="xla:1")
    w.mul_(2).add_(b) ; head.mul_(3) ; moment.add_(far)
    script(f"{call}:{at}={value}")
    start, first = time.perf_counter(), ticks
    said = [tell(torch_pjrt.sync)[1]]
    in_sync = plugin.fake_plugin_count(call.encode()) >= at
    states = [torch_pjrt.state(t) for t in (y, w, moment)]
    said += [tell(lambda: (y.sin() + c).tolist())[1], tell(lambda: late.add(y).tolist())[1],
            tell(head.tolist)[1],
            tell(lambda: (y + 1).nonzero().tolist())[1], tell(lambda: (moment * far).tolist())[1]]
    del c
    took, ticked = time.perf_counter() - start, ticks - first
    hits = plugin.fake_plugin_count(call.encode())
    script("")
    none = [0.0] * n
    kept = dict(a=(a, list(map(float, range(n)))), b=(b, [1.0] * n), far=(far, [5.0] * n),
                late=(late, [3.0] * n), zeros=(zeros, [0.0] * (n + 1)), sevens=(sevens, [7.0] * n),
                y=(y, none), w=(w, none), head=(head, [0.0, 0.0]), moment=(moment, none))
    def wrong():
        return {k: got for k, (t, v) in kept.items() if (got := tell(t.tolist)) != [v, ""]}
    bad = wrong()
    w.mul_(2) ; moment.mul_(2) ; next_step = tell(lambda: torch_pjrt.sync(wait=True))[1]
    bad |= {"next " + k: got for k, got in wrong().items()}
    if next_step or tell((y + late).tolist) != [none, ""]:
        bad["next"] = next_step
    return dict(call=call, value=value, at=at, in_sync=in_sync, said=[s for s in said if s],
                hits=hits, bad=bad, states=states, took=took, ticked=ticked)

n = 3
for call in json.loads(os.environ["CALLS"]):
    for value in json.loads(os.environ["VALUES"]):
        for at in json.loads(os.environ["TIMES"]):
            n += 1  # other shapes, so that each compiles anew
            row = scenario(call, value, at, n)
            print(json.dumps(row))
            if row["hits"] < at: break  # a step does not make that call
"""


@pytest.fixture(scope="module", params=["host", "accelerator"])
def seen(request, fake, run_python):
    """What each (call, value) led to."""
    env = {"TORCH_PJRT_FAKE_OFF_HOST": "1"} if request.param == "accelerator" else {}
    done = run_python(
        code=PRELUDE + TICKING + CODE,
        CALLS=json.dumps(CALLS),
        VALUES=json.dumps(VALUES),
        TIMES=json.dumps(TIMES),
        TORCH_PJRT_FAKE_DEVICES="2",
        **fake_env(fake),
        **env,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {(r["call"], r["value"]) for r in rows} == {(c, v) for c in CALLS for v in VALUES}
    return rows


def failures(seen, calls):
    """The rows in which the sync itself failed: a read computes what it can, and says so."""
    return [r for r in seen if r["call"] in calls and r["in_sync"] and "HANG" not in r["value"]]


def test_nothing_is_lost_and_the_next_step_works(seen):
    assert [r for r in seen if r["bad"]] == []


def test_each_call_that_a_step_makes_was_put_to_the_test(seen):
    hit = {r["call"] for r in seen if r["hits"]}
    assert set(LOUD) <= hit
    assert "PJRT_Buffer_IsDeleted" in hit  # asked of what was given away
    assert len(hit) >= 12, hit


def test_a_step_compiles_launches_and_uploads_for_both_devices(seen):
    for call in LOUD:
        assert {r["at"] for r in failures(seen, [call])} >= {1, 2}, call


def test_loud_failures_are_raised_with_the_plugins_code_and_words(seen):
    for r in failures(seen, LOUD):
        code = r["value"].split()[0]
        assert f"{r['call']} failed with {code}" in r["said"][0], r
        assert "no such luck" in r["said"][0], r


def test_failures_of_a_program_name_it_its_ops_and_the_users_lines(seen):
    for r in failures(seen, PROGRAM):
        assert re.search(
            r"in program [0-9a-f]{8}: \w+::\w+[.\w]* f32\[\d+\] \(<string>:\d+ in scenario\)",
            r["said"][0],
        ), r
        assert re.search(r"called at <string>:\d+", r["said"][0]), r


def test_pending_work_is_still_pending_after_a_failed_compile_launch_or_upload(seen):
    for r in failures(seen, PROGRAM):
        assert r["said"][0].startswith(("RuntimeError", "OutOfMemoryError")), r
        first = "ir" if r["at"] == 1 else "device"  # of the first device, whose program comes first
        assert r["states"] == [first, first, "ir"], r
    for r in failures(seen, LOUD):
        assert r["states"][2] == "ir", r


def test_out_of_memory_names_the_largest_tensors_and_what_was_donated(seen):
    for r in failures(seen, LOUD):
        if r["value"].startswith("RESOURCE"):
            first = r["said"][0]
            assert first.startswith("OutOfMemoryError"), r
            assert re.search(r"live on the device: \d+ tensors, .*; the largest: f32\[\d+\]", first)
            assert "donated to programs so far" in first


def test_hangs_that_end_change_nothing_and_hold_no_other_thread(seen):
    for r in seen:
        if r["value"].startswith("HANG"):
            assert r["said"] == [], r
        if r["value"].startswith("HANG") and r["call"] in LOUD and r["in_sync"]:
            assert r["took"] >= 0.14, r
            assert r["ticked"] >= 3, r
