"""Programs compiled for accelerators: what the tools read of them, and what CI reports."""

import pytest

from fkeras import layers
from tests.cases import Case
from tests.support.paths import ROOT
from tools.accelerators import programs
from tools.ci import accelerator_layers

PROGRAM = """\
%fused (p: f32[4]) -> f32[4] {
  ROOT %inner = f32[4]{0} exponential(%p), backend_config={"estimated_cycles":"900"}
}

%body (state: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%state), index=1
  ROOT %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"10"}
}

%condition (state: (s32[], f32[4])) -> pred[] {
  %limit = s32[]{:T(128)} constant(7)
  ROOT %less = pred[] compare(%state, %limit), direction=LT
}

ENTRY %main (a: f32[2,4]) -> f32[2,4] {
  %a = f32[2,4]{1,0} parameter(0)
  %copy.1 = bf16[2,4]{0,1} copy(%a), backend_config={"estimated_cycles":"100"}
  %known = (s32[], f32[4]{0}) while(%copy.1), condition=%condition, body=%body, "known_trip_count":{"n":"3"}
  %counted = (s32[], f32[4]{0}) while(%known), condition=%condition, body=%body
  ROOT %call = f32[2,4]{1,0} custom-call(%copy.1), backend_config={"estimated_cycles":"9000000000000"}
}
"""


def test_cycles_and_bytes_count_the_steps_of_loops():
    program = programs.Program(PROGRAM, trips=1)
    assert program.cycles == 100 + (3 + 7) * 10
    assert program.unknown == 1
    # a copy of float32 to bfloat16, a loop over 4 numbers, a call that reads the copy
    assert program.bytes == (32 + 16) + (3 + 7) * 32 + (16 + 32)
    assert program.counts["copy"] == 1 and program.counts["while"] == 2
    assert program.costly(1) == [[100, "copy.1", ""]]


BRANCHES = """\
%usual (x: f32[4]) -> f32[4] {
  ROOT %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"10"}
}

%rare (x: f32[4]) -> f32[4] {
  ROOT %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"70"}
}

ENTRY %main (a: f32[4], is_near: pred[]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  ROOT %chosen = f32[4]{0} conditional(%is_near, %a, %a), branch_computations={%rare, %usual}
}
"""


def test_a_conditional_counts_as_its_cheapest_branch():
    program = programs.Program(BRANCHES, trips=1)
    assert (program.cycles, program.rare) == (10, 60)
    assert program.counts["fusion"] == 1


SLICED = """\
%fused (p: f32[64]) -> f32[4] {
  %p = f32[64]{0} parameter(0)
  ROOT %part = f32[4]{0} slice(%p), slice={[0:4]}
}

ENTRY %main (a: f32[64]) -> f32[4] {
  %a = f32[64]{0} parameter(0)
  ROOT %fusion = f32[4]{0} fusion(%a), kind=kLoop, calls=%fused
}
"""


def test_a_fusion_that_slices_an_operand_reads_the_slice():
    assert programs.Program(SLICED, trips=1).bytes == 16 + 16
    wider = SLICED.replace("ROOT %part", "%c = f64[64]{0} convert(%p)\n  ROOT %part", 1)
    wider = wider.replace("f32[4]{0} slice(%p)", "f64[4]{0} slice(%c)")
    assert programs.Program(wider, trips=1).bytes == 16 + 16
    whole = SLICED.replace("slice(%p), slice={[0:4]}", "reduce(%p)")
    assert programs.Program(whole, trips=1).bytes == 16 + 256


UPDATED = """\
%fused (p: f32[64], q: f32[4], i: s32[]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  %i = s32[]{:T(128)} parameter(2)
  ROOT %update = f32[64]{0} dynamic-update-slice(%p, %q, %i)
}

ENTRY %main (a: f32[64], b: s4[5], i: s32[]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  %i = s32[]{:T(128)} parameter(2)
  ROOT %fusion = f32[64]{0} fusion(%a, %b, %i), kind=kLoop, calls=%fused
}
"""


def test_an_update_in_place_moves_the_update():
    assert programs.Program(UPDATED, trips=1).bytes == 16 + 16 + 4
    alone = UPDATED.replace(
        "fusion(%a, %b, %i), kind=kLoop, calls=%fused", "dynamic-update-slice(%a, %b, %i)"
    )
    assert programs.Program(alone, trips=1).bytes == 16 + 16 + 4
    # the result is another array
    read = UPDATED.replace("ROOT %update", "%update").replace(
        "}\n\nENTRY", "  ROOT %sum = f32[64]{0} add(%p, %update)\n}\n\nENTRY"
    )
    assert programs.Program(read, trips=1).bytes == 256 + 256 + 16 + 4


MOVED = """\
ENTRY %main (a: s4[5]) -> s4[5] {
  %a = s4[5]{0} parameter(0)
  %start = (s4[5]{0:S(1)}, s4[5]{0}, u32[]{:S(2)}) copy-start(%a)
  ROOT %done = s4[5]{0:S(1)} copy-done(%start)
}
"""


def test_an_asynchronous_copy_moves_its_array_once():
    assert programs.Program(MOVED, trips=1).bytes == 2 * 3


def test_a_compiler_that_is_not_installed_is_named():
    target = programs.Target("tpu", "no_such_compiler", "jax[tpu]")
    assert target.missing == "no compiler for tpu: pip install jax[tpu]"


def test_more_cycles_or_bytes_than_the_file_says_are_reported():
    before = {"outputs": [1000, 500], "gradients": [0, 800]}
    assert accelerator_layers.losses(before, before) == []
    more = {"outputs": [1040, 500], "gradients": [0, 880]}
    assert accelerator_layers.losses(more, before) == ["gradients: 880 bytes, 10% more than 800"]


@pytest.mark.parametrize(
    ("layer", "device", "error", "expected"),
    [
        (layers.Dense(2), "v5e", "no kernel for dense products", True),
        (layers.Dense(2), "h100", "no kernel for dense products", False),
        (layers.Dense(2), "v5e", "out of memory", False),
        (layers.ReLU(), "h100", "there are no tiles", True),
        (layers.ReLU(), "v5e", "no kernel for dense products", False),
    ],
)
def test_an_error_counts_unless_the_page_names_layer_device_and_error(
    monkeypatch, tmp_path, layer, device, error, expected
):
    page = tmp_path / "page.md"
    page.write_text(
        "## What does not compile\n\n| layers | device | error | remedy |\n|---|---|---|---|\n"
        "| `Dense`, `Conv2D` | v5e | `no kernel for` | none |\n| any | h100 | `no tiles` | none |\n"
    )
    monkeypatch.setattr(accelerator_layers, "PAGE", page)
    assert accelerator_layers.documented(Case(layer, ((2, 3),)), device, error) == expected


def test_the_numbers_are_those_of_rows_of_the_layer_table():
    versions, rows = accelerator_layers.read()
    assert set(versions) == set(accelerator_layers.VERSIONS)
    assert set(rows) <= set(accelerator_layers.named_cases())


def test_ci_compiles_a_part_of_the_layer_table():
    if not (ROOT / ".ci").exists():
        pytest.skip("the source archive has no CI")
    command = '"$python" tools/ci/accelerator_layers.py --install --part "$layers"\n'
    assert command in (ROOT / ".ci" / "run").read_text()
