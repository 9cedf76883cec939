"""Programs of TPUs: expected cycles, loops without a stated length, memories, and divided collectives."""

import pytest

import fkeras as fk
from fkeras import layers
from fkeras.planning.arrays import by_computation, cycles, largest, memory_bytes, received
from fkeras.planning.attribution import UPDATE, Calls
from fkeras.planning.scopes import instructions, scopes

# shortened text of the compiler: a scan of 16 steps, an asynchronous all-gather in two fusions
PROGRAM = r"""
%fused (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inner = f32[8,128]{1,0:T(8,128)} exponential(%p), backend_config={"window_config":{"estimated_cycles":"777"}}
}

%gather_1 (q: f32[16,128]) -> f32[128,128] {
  %q = f32[16,128]{1,0:T(8,128)} parameter(0)
  ROOT %all-gather.1 = f32[128,128]{1,0:T(8,128)} all-gather(%q), channel_id=7, dimensions={0}
}

%gather_2 (r: f32[16,128]) -> f32[128,128] {
  %r = f32[16,128]{1,0:T(8,128)} parameter(0)
  ROOT %all-gather.2 = f32[128,128]{1,0:T(8,128)S(1)} all-gather(%r), channel_id=7, dimensions={0}
}

%condition (c: (s32[], f32[8,128])) -> pred[] {
  %limit = s32[]{:T(128)} constant(16)
  %c = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %number = s32[]{:T(128)} get-tuple-element(%c), index=0
  ROOT %lt = pred[]{:T(512)} compare(%number, %limit), direction=LT, metadata={op_name="jit(train_logs)/jvp(Model)/hidden/while/cond/lt"}
}

%body (b: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %b = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %h = f32[8,128]{1,0:T(8,128)} get-tuple-element(%b), index=1
  %step = f32[8,128]{1,0:T(8,128)} fusion(%h), kind=kLoop, calls=%fused, metadata={op_name="jit(train_logs)/jvp(Model)/hidden/while/body/exp"}, backend_config={"window_config":{"estimated_cycles":"10"}}
  %sum = f32[8,128]{1,0:T(8,128)} all-reduce(%step), channel_id=8, to_apply=%add, metadata={op_name="jit(train_logs)/jvp(Model)/hidden/while/body/add"}
  ROOT %next = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%n, %sum)
}

%short (s: f32[8,128]) -> f32[8,128] {
  ROOT %few = f32[8,128]{1,0:T(8,128)} negate(%s), backend_config={"window_config":{"estimated_cycles":"3"}}
}

%long (l: f32[8,128]) -> f32[8,128] {
  ROOT %many = f32[8,128]{1,0:T(8,128)} negate(%l), metadata={op_name="jit(train_logs)/jvp(Model)/out/neg"}, backend_config={"window_config":{"estimated_cycles":"50"}}
}

ENTRY %main (w: f32[16,128], x: f32[8,128]) -> f32[8,128] {
  %w = f32[16,128]{1,0:T(8,128)} parameter(0), metadata={op_name="run.model[\'hidden/kernel\']"}
  %x = f32[8,128]{1,0:T(8,128)} parameter(1)
  %copy-start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %copy-done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %g1 = f32[128,128]{1,0:T(8,128)} fusion(%w), kind=kCustom, calls=%gather_1, metadata={op_name="run.model[\'hidden/kernel\']"}
  %g2 = f32[128,128]{1,0:T(8,128)S(1)} fusion(%w), kind=kCustom, calls=%gather_2, metadata={op_name="run.model[\'hidden/kernel\']"}
  %init = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%zero, %copy-done)
  %loop = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%init), condition=%condition, body=%body, metadata={op_name="jit(train_logs)/jvp(Model)/hidden/while"}
  %last = f32[8,128]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %choice = f32[8,128]{1,0:T(8,128)} conditional(%i, %last, %last), branch_computations={%short, %long}, metadata={op_name="jit(train_logs)/jvp(Model)/out/cond"}
  %kernel = f32[8,128]{1,0:T(8,128)} custom-call(%choice), custom_call_target="tpu_custom_call", metadata={op_name="jit(train_logs)/jvp(Model)/attention/pallas_call"}
  %unknown = f32[8,128]{1,0:T(8,128)} fusion(%kernel), kind=kLoop, calls=%fused, metadata={op_name="jit(train_logs)/jvp(Model)/out/sort"}, backend_config={"window_config":{"estimated_cycles":"9223372036854775807"}}
  ROOT %result = f32[8,128]{1,0:T(8,128)} fusion(%unknown, %g1, %g2), kind=kOutput, calls=%fused, metadata={op_name="jit(train_logs)/add"}, backend_config={"window_config":{"estimated_cycles":"400"}}
}
"""
COMPUTATIONS = by_computation(instructions(PROGRAM))


def test_cycles_of_loops_conditionals_and_fusions():
    assert cycles(COMPUTATIONS) == [
        ("step", 160),  # 16 steps of the loop; the operations inside of a fusion are no operations
        ("many", 50),  # the branch that takes longest
        ("kernel", None),
        ("unknown", None),
        ("result", 400),
    ]


def test_a_stated_number_of_steps_precedes_the_condition():
    text = PROGRAM.replace(
        "body=%body,", 'body=%body, backend_config={"known_trip_count":{"n":"3"}},'
    )
    assert dict(cycles(by_computation(instructions(text))))["step"] == 30


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("direction=LT", "direction=NE"),
        ("%limit = s32[]{:T(128)} constant(16)", "%limit = s32[]{:T(128)} add(%a, %b)"),
    ],
)
def test_a_loop_of_unknown_length_counts_once(old, new):
    text = PROGRAM.replace(old, new)
    assert dict(cycles(by_computation(instructions(text))))["step"] == 10


def test_a_divided_collective_counts_once():
    found = [(a.kind, a.operation, a.size, a.times) for a in received(COMPUTATIONS)]
    assert found == [
        ("all-gather", "all-gather.1", 128 * 128 * 4, 1),
        ("all-reduce", "sum", 16 * 8 * 128 * 4, 16),
    ]


def test_arrays_in_the_memory_of_the_core_take_none_of_the_device():
    sizes = dict(largest(COMPUTATIONS))
    assert sizes["g1"] == 128 * 128 * 4
    assert sizes.get("g2", 0) == 0 and sizes.get("copy-start 0", 0) == 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[64,3]{0,1:T(8,128)}", 4 * 128 * 8),
        ("f32[64,3]{1,0:T(8,128)}", 4 * 64 * 128),
        ("bf16[5,64,64]{1,2,0:T(8,128)(2,1)}", 2 * 5 * 64 * 128),
        ("s4[3]{0:E(4)}", 2),
        ("f32[]{:T(128)}", 4),
        ("f32[8,128]{1,0:T(8,128)S(1)}", 0),
        ("f32[8,128]{1,0:S(0)}", 4096),
        ("f32[8,128]", 4096),
    ],
)
def test_bytes_of_layouts(shape, size):
    assert memory_bytes(shape) == [size]


def test_operations_on_weights_belong_to_the_call_of_the_weight():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dense(2, name="out")(layers.Dense(3, name="hidden")(x)))
    calls = Calls(model)
    stacks = scopes(instructions(PROGRAM))
    assert calls.owners(stacks["g1"]) == ("hidden",)
    assert calls.of_scope("run.model['out/bias") == "out"
    assert calls.of_scope("run.opt_state['momentum") == UPDATE
    assert calls.of_scope("run.model['gone/kernel") == UPDATE
