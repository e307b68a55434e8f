"""Every entry of the C API fails, runs out of memory, or hangs, one at a time: what was readable
stays readable, what was pending stays pending, the error says all that is known, the next step
works. One process goes through all of them (tests/fakeplugin/faults.cpp lists the entries).
"""

import json
import re
from pathlib import Path

import pytest
from fake_plugin import ROOT

CALLS = re.findall(r"WRAP\((PJRT_\w+)\)", Path(ROOT, "tests/fakeplugin/faults.cpp").read_text())
CALLS = sorted({c for c in CALLS if "Plugin_" not in c and "Client_Create" not in c})
VALUES = ("INTERNAL no such luck", "RESOURCE_EXHAUSTED no such luck", "HANG 150")
# Calls whose failure no step can hide, and those among them that belong to a program.
PROGRAM = ("PJRT_Client_Compile", "PJRT_LoadedExecutable_Execute")
LOUD = (*PROGRAM, "PJRT_Client_BufferFromHostBuffer")

CODE = """
import json, threading, time
ticks = 0
def tick():
    global ticks
    while True:
        time.sleep(0.005)
        ticks += 1
threading.Thread(target=tick, daemon=True).start()

def tell(f):
    try:
        return [f(), ""]
    except Exception as e:
        return [None, f"{type(e).__name__}: {e}"]

def scenario(call, value, n):
    a = torch.arange(float(n)).to("xla") ; b = torch.ones(n).to("xla")
    c = (a + 1).relu()
    torch_pjrt.sync(wait=True)
    y = a * b ; late = torch.full((n,), 3.0).to("xla")
    script(f"{call}:1={value}")
    start, first = time.perf_counter(), ticks
    said = [tell(torch_pjrt.sync)[1], tell(lambda: (y.sin() + c).tolist())[1],
            tell(lambda: late.add(y).tolist())[1]]
    del c
    took, ticked = time.perf_counter() - start, ticks - first
    hits = plugin.fake_plugin_count(call.encode())
    script("")
    zeros, state = [0.0] * n, torch_pjrt.state(y)
    after = [a.tolist() == [float(i) for i in range(n)], b.tolist() == [1.0] * n,
             late.tolist() == [3.0] * n, y.tolist() == zeros, (y + late).tolist() == zeros]
    return dict(call=call, value=value, said=[s for s in said if s], hits=hits, after=after,
                state=state, took=took, ticked=ticked)

n = 3
for call in json.loads(os.environ["CALLS"]):
    for value in json.loads(os.environ["VALUES"]):
        n += 1  # other shapes, so that each compiles anew
        print(json.dumps(scenario(call, value, n)))
"""


@pytest.fixture(scope="module", params=["host", "accelerator"])
def seen(request, fake, run_python):
    """What each (call, value) led to."""
    from fake_plugin import PRELUDE

    env = {"TORCH_PJRT_FAKE_OFF_HOST": "1"} if request.param == "accelerator" else {}
    done = run_python(
        code=PRELUDE + CODE,
        CALLS=json.dumps(CALLS),
        VALUES=json.dumps(VALUES),
        TORCH_PJRT_PLUGIN=f"FAKE:{fake}",
        PJRT_DEVICE="FAKE",
        FAKE=fake,
        **env,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(CALLS) * len(VALUES)
    return rows


def test_nothing_is_lost_and_the_next_step_works(seen):
    bad = [(r["call"], r["value"], r["after"], r["said"]) for r in seen if not all(r["after"])]
    assert bad == []


def test_each_call_that_a_step_makes_was_put_to_the_test(seen):
    hit = {r["call"] for r in seen if r["hits"]}
    assert set(LOUD) <= hit
    assert len(hit) >= 12, hit


def test_loud_failures_are_raised_with_the_plugins_code_and_words(seen):
    for r in seen:
        if r["call"] not in LOUD or r["value"].startswith("HANG"):
            continue
        code = r["value"].split()[0]
        assert any(
            f"{r['call']} failed with {code}" in s and "no such luck" in s for s in r["said"]
        ), r


def test_failures_of_a_program_name_it_its_ops_and_the_users_lines(seen):
    for r in seen:
        if r["call"] in PROGRAM and not r["value"].startswith("HANG"):
            assert re.search(
                r"in program [0-9a-f]{8}: aten::\w+[.\w]* f32\[\d+\] \(<string>:\d+ in scenario\)",
                r["said"][0],
            ), r
            assert re.search(r"called at <string>:\d+", r["said"][0]), r


def test_pending_work_is_still_pending_after_a_failed_compile_or_launch(seen):
    # A read that follows computes what it can; only one call in a row fails, so look at the first.
    for r in seen:
        if r["call"] in PROGRAM and not r["value"].startswith("HANG"):
            assert r["said"][0].startswith(("RuntimeError", "OutOfMemoryError")), r
            assert r["after"][3], r


def test_out_of_memory_names_the_largest_tensors_and_what_was_donated(seen):
    for r in seen:
        if r["call"] in LOUD and r["value"].startswith("RESOURCE"):
            first = r["said"][0]
            assert first.startswith("OutOfMemoryError"), r
            assert re.search(r"live on the device: \d+ tensors, .*; the largest: f32\[\d+\]", first)
            assert "donated to programs so far" in first


def test_hangs_that_end_change_nothing_and_hold_no_other_thread(seen):
    for r in seen:
        if r["value"].startswith("HANG"):
            assert r["said"] == [], r
        if r["value"].startswith("HANG") and r["call"] in LOUD:
            assert r["took"] >= 0.14, r
            assert r["ticked"] >= 3, r
