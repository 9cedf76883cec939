"""Plans and profiles as text tables and as HTML."""

from __future__ import annotations

import collections
import html
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fkeras.authoring.engine import html_table, number_text

_WIDTH, _GAP = 100, "  "


def size_text(count: float) -> str:
    """Returns a number of bytes with three digits and a unit of 1024."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1023.5 and len(units) > 1:
        size, units = size / 1024, units[1:]
    if units[0] == "B" or size >= 99.95:
        return f"{size:.0f} {units[0]}"
    return f"{size:.1f} {units[0]}"


def text_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[int]
) -> list[str]:
    """Returns the lines of a table of at most 100 columns; long names continue in the next line.

    Example:
        >>> print("\\n".join(text_table(("name", "size"), [("dense", "4")], {1})))
        ─────  ────
        name   size
        ─────  ────
        dense     4
        ─────  ────
    """
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > _WIDTH:
        widest = max((i for i in range(len(widths)) if i not in numbers), key=widths.__getitem__)
        if widths[widest] <= 8:
            break
        widths[widest] -= 1
    line = _GAP.join("─" * width for width in widths)
    body = [part for row in rows for part in _lines(row, widths, numbers)]
    return [line, *_lines(headings, widths, numbers), line, *body, line]


def _lines(cells: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> Iterator[str]:
    columns = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
        for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, columns))):
        texts = [column[number] if number < len(column) else "" for column in columns]
        aligned = (
            text.rjust(width) if i in numbers else text.ljust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        )
        yield _GAP.join(aligned).rstrip()


def _plan_rows(plan: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    headings = ("Call (layer)", "Weights", "State", "Optimizer", "At the peak", "FLOPs")
    rows = []
    for call in plan.calls:
        layer = f" ({call.layer})" if call.layer else ""
        rows.append((call.name + layer, *_plan_numbers(call, plan)))
    rows.append(("total", *_plan_numbers(plan, plan)))
    if plan.devices > 1:
        headings = (*headings, "Communication")
    return (headings if plan.cycles is None else (*headings, "Cycles")), rows


def _plan_numbers(part: Any, plan: Any) -> tuple[str, ...]:
    sizes = (part.weights, part.state, part.optimizer, part.activations)
    texts = (*map(size_text, sizes), number_text(part.flops))
    if plan.devices > 1:
        texts = (*texts, size_text(part.communication))
    return texts if plan.cycles is None else (*texts, number_text(part.cycles))


def _plan_title(plan: Any) -> str:
    rows = f"{plan.rows} row{'s' if plan.rows != 1 else ''}"
    remat = "" if plan.remat is None else f", remat={_policy(plan.remat)}"
    devices = "" if plan.devices == 1 else f", one of {plan.devices} devices"
    target = f"device {plan.device!r}" if plan.device else f"backend {plan.backend!r}"
    return f"Plan of a training step on {rows}{remat}, for the {target}{devices}"


def _policy(remat: Any) -> str:
    return repr(remat) if isinstance(remat, str) else getattr(remat, "__name__", "a policy")


def _plan_totals(plan: Any) -> list[str]:
    totals = [
        f"Peak memory: {size_text(plan.peak)} = arguments {size_text(plan.arguments)} + results "
        f"{size_text(plan.results)} + intermediate arrays {size_text(plan.activations)}",
        f"Gradients: {size_text(plan.gradients)}   FLOPs: {number_text(plan.flops)}   "
        f"transcendental functions: {number_text(plan.transcendentals)}",
    ]
    if plan.device:
        fits = "The step fits" if plan.fits else "The step does not fit"
        totals.insert(1, f"{fits} into the {size_text(plan.device_memory)} of one {plan.device}.")
    totals += _time_totals(plan)
    if plan.collectives:
        parts = (f"{n} {kind} ({size_text(size)})" for kind, n, size in plan.collectives)
        totals.append(f"Collective operations: {', '.join(parts)}")
    totals += [
        f"One loop: {len(blocks)} blocks of {len(blocks[0])} call{'s' if len(blocks[0]) > 1 else ''}, "
        f"{blocks[0][0]} … {blocks[-1][-1]}"
        for blocks in plan.loops
    ]
    counts = collections.Counter(kernel for _, kernel in plan.kernels)
    if counts:
        parts = (f"{kernel} in {n} call{'s' if n > 1 else ''}" for kernel, n in counts.items())
        totals.append(f"Attention kernels: {', '.join(parts)}")
    if plan.unknown:
        totals.append(f"Not counted: {', '.join(sorted(plan.unknown))}")
    if plan.whole_key_heads:
        paths, count = plan.whole_key_heads, len(plan.whole_key_heads)
        more = f", and {count - 4} more" if count > 4 else ""
        totals.append(
            "Whole on every device, since the mesh cannot split their key heads: "
            f"{', '.join(paths[:4])}{more}"
        )
    return totals


def _time_totals(plan: Any) -> list[str]:
    """Returns lines about the expected time of a plan or an estimate."""
    if plan.cycles is None:
        known = plan.backend in ("cpu", "tpu") or plan.rejected
        return [] if known else ["Time: the compiler of GPUs states no cycles."]
    seconds = "" if plan.seconds is None else f"{time_text(plan.seconds)} = "
    totals = [f"Expected time of the operations: {seconds}{number_text(plan.cycles)} cycles"]
    most = sorted(plan.calls, key=lambda call: -call.cycles)[:3]
    if plan.cycles:
        parts = (f"{call.name} {call.cycles / plan.cycles:.0%}" for call in most if call.cycles)
        totals[0] += f", most in {', '.join(parts)}"
    if plan.without_cycles:
        paths, count = plan.without_cycles, len(plan.without_cycles)
        more = f", and {count - 4} more" if count > 4 else ""
        totals.append(f"Operations of unknown time in: {', '.join(paths[:4])}{more}")
    return totals


def plan_text(plan: Any) -> str:
    """Returns a plan as text."""
    headings, rows = _plan_rows(plan)
    lines = text_table(headings, rows, range(1, len(headings)))
    return "\n".join([_plan_title(plan), *lines, *_plan_totals(plan)])


def plan_html(plan: Any) -> str:
    """Returns a plan as HTML."""
    headings, rows = _plan_rows(plan)
    return html_page(_plan_title(plan), headings, rows, _plan_totals(plan))


_ADVICE = ("remat", "Devices", "Largest batch", "Peak memory", "FLOPs for each row")
_CYCLES = "Cycles for each row"


def _advice_headings(advice: Any) -> tuple[str, ...]:
    known = any(each.plan.cycles is not None for each in advice.candidates)
    return (*_ADVICE, _CYCLES) if known else _ADVICE


def _advice_rows(advice: Any) -> list[tuple[str, ...]]:
    shown = len(_advice_headings(advice))
    return [
        (
            "None" if each.remat is None else _policy(each.remat),
            str(each.devices) if each.sharding is None else f"{each.devices}, {_sharding(each)}",
            str(each.rows) if each.rows else "none fits",
            size_text(each.plan.peak),
            number_text(each.flops_per_row),
            "" if each.plan.cycles is None else number_text(each.plan.cycles / each.plan.rows),
        )[:shown]
        for each in advice.candidates
    ]


def _sharding(candidate: Any) -> str:
    return repr(candidate.sharding) if isinstance(candidate.sharding, str) else "split weights"


def _advice_totals(advice: Any) -> list[str]:
    if advice.best is not None:
        remat = "None" if advice.best.remat is None else _policy(advice.best.remat)
        devices = advice.best.devices
        split = f" on {devices} devices" if devices > 1 else ""
        return [f"A batch of {advice.rows} fits with remat={remat}{split}."]
    if any(each.rows for each in advice.candidates):
        return [f"A batch of {advice.rows} does not fit: choose a smaller batch."]
    return [
        "Not even one row fits: split the weights over several devices, or choose a smaller model."
    ]


def advice_text(advice: Any) -> str:
    """Returns the candidates of `fit_into` as text."""
    lines = text_table(_advice_headings(advice), _advice_rows(advice), {1, 2, 3, 4, 5})
    title = f"Batches that fit into {size_text(advice.budget)}"
    return "\n".join([title, *lines, *_advice_totals(advice)])


def advice_html(advice: Any) -> str:
    """Returns the candidates of `fit_into` as HTML."""
    title = f"Batches that fit into {size_text(advice.budget)}"
    return html_page(title, _advice_headings(advice), _advice_rows(advice), _advice_totals(advice))


_ESTIMATE = ("Call (layer)", "Time", "Share", "Cycles", "FLOPs", "FLOPs / cycle")


def _estimate_rows(estimate: Any) -> list[tuple[str, ...]]:
    total = "total", "", estimate.cycles, sum(call.flops for call in estimate.calls)
    calls = ((call.name, call.layer, call.cycles, call.flops) for call in estimate.calls)
    return [
        (
            f"{name} ({layer})" if layer else name,
            time_text(cycles / estimate.clock) if estimate.clock else "",
            f"{cycles / (estimate.cycles or 1):.1%}",
            number_text(cycles),
            number_text(flops),
            number_text(flops / cycles) if flops and cycles else "",
        )
        for name, layer, cycles, flops in (*calls, total)
    ]


def _estimate_title(estimate: Any) -> str:
    rows = f"{estimate.rows} row{'s' if estimate.rows != 1 else ''}"
    return f"Expected time of a training step on {rows}, by the compiler of a {estimate.device or 'TPU'}"


def estimate_text(estimate: Any) -> str:
    """Returns an estimate as text."""
    lines = text_table(_ESTIMATE, _estimate_rows(estimate), range(1, len(_ESTIMATE)))
    return "\n".join([_estimate_title(estimate), *lines, *_time_totals(estimate)])


def estimate_html(estimate: Any) -> str:
    """Returns an estimate as HTML, with the drawing."""
    rows, totals = _estimate_rows(estimate), _time_totals(estimate)
    page = html_page(_estimate_title(estimate), _ESTIMATE, rows, totals)
    return f'{page}\n<div style="overflow:auto">{estimate.svg}</div>'


_PROFILE = ("Call (layer)", "Time", "Share", "FLOPs", "FLOP/s", "Weights", "At the peak")


def time_text(seconds: float) -> str:
    """Returns a time with three digits and a unit.

    Example:
        >>> time_text(0.01234), time_text(2.5e-7), time_text(75)
        ('12.3 ms', '0.25 µs', '75 s')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * factor or unit == "µs":
            value = seconds / factor
            return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
    return ""


def _profile_rows(profile: Any) -> list[tuple[str, ...]]:
    rows, total = [], profile.seconds or 1.0
    for call in profile.calls:
        layer = f" ({call.layer})" if call.layer else ""
        numbers = call.seconds, call.plan.flops, call.plan.weights, call.plan.activations
        rows.append((call.name + layer, *_profile_numbers(total, *numbers)))
    plan = profile.plan
    numbers = profile.seconds, plan.flops, plan.weights, plan.activations
    return [*rows, ("total", *_profile_numbers(total, *numbers))]


def _profile_numbers(
    total: float, seconds: float, flops: float, weights: int, activations: int
) -> tuple[str, ...]:
    speed = number_text(flops / seconds) if seconds and flops else ""
    return (
        time_text(seconds),
        f"{seconds / total:.1%}",
        number_text(flops),
        speed,
        size_text(weights),
        size_text(activations),
    )


def _profile_title(profile: Any) -> str:
    steps = f"{profile.steps} step{'s' if profile.steps != 1 else ''}"
    return f"Profile of a training step on {profile.plan.rows} rows: median of {steps}"


def _profile_totals(profile: Any) -> list[str]:
    return [
        f"A step takes {time_text(profile.step_seconds)} without the trace, "
        f"{time_text(profile.seconds)} with it."
    ]


def profile_text(profile: Any) -> str:
    """Returns a profile as text."""
    lines = text_table(_PROFILE, _profile_rows(profile), range(1, len(_PROFILE)))
    return "\n".join([_profile_title(profile), *lines, *_profile_totals(profile)])


def profile_html(profile: Any) -> str:
    """Returns a profile as HTML."""
    rows = _profile_rows(profile)
    return html_page(_profile_title(profile), _PROFILE, rows, _profile_totals(profile))


def html_page(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[str]
) -> str:
    """Returns a title, a table whose columns are numbers except the first, and lines, as HTML."""
    return "\n".join(
        [
            f"<p><b>{html.escape(title)}</b></p>",
            '<div style="max-height:40em;overflow:auto">',
            html_table(headings, rows, range(1, len(headings))),
            "</div>",
            *(f"<div>{html.escape(line)}</div>" for line in totals),
        ]
    )
