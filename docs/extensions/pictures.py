"""Draws the pictures of the first page, light and dark: `python docs/extensions/pictures.py`.

The texts are those that fkeras prints; `benchmarks/first_page.py` measures the numbers in
`pictures.json`.
"""

import html
import json
import pathlib
import re

import jax

import fkeras as fk
from fkeras import layers

MEASURED = pathlib.Path(__file__).with_name("pictures.json")
FOLDER = pathlib.Path(__file__).parents[1] / "static/pictures"
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"
COLORS = {
    "light": {
        "paper": "#f6f8fa", "text": "#1f2328", "dim": "#6a737d", "mark": "#0550ae", "good": "#116329", "bad": "#a40e26",
        "bar": "#8c959f", "own": "#0969da",
    },
    "dark": {
        "paper": "#1b1f24", "text": "#e6edf3", "dim": "#8b949e", "mark": "#79c0ff", "good": "#7ee787", "bad": "#ffa198",
        "bar": "#6e7681", "own": "#388bfd",
    },
}  # fmt: skip
CHARACTER, LINE, EDGE = 8.4, 20, 14


def small_model():
    image = x = fk.Input((28, 28, 1), name="image")
    for number, filters in enumerate((16, 32)):
        x = layers.Conv2D(filters, 3, activation="relu", name=f"conv{number}")(x)
        x = layers.MaxPooling2D(name=f"pool{number}")(x)
    x = layers.Dropout(0.5, name="drop")(layers.Flatten(name="flat")(x))
    model = fk.Model(image, layers.Dense(10, activation="softmax", name="digit")(x))
    return model.build(jax.random.key(0))


def changed_model(model):
    changes = {"digit": layers.Dense(3, activation="softmax"), "drop": layers.Dropout(0.25)}
    other = fk.transforms.replace(model, changes)
    return fk.freeze(other.build(jax.random.key(1)), "conv0")


def short_plan(text):
    """The title and the table of a plan, and the sentences on memory and time."""
    lines = text.splitlines()
    table = [line for line in lines if re.match(r"Call|block|words|\(|total", line)]
    fits = next(line for line in lines if line.startswith("The step fits"))
    expected = next(line for line in lines if line.startswith("Expected time")).partition(" = ")[0]
    return [lines[0], *table, f"{fits} {expected.replace(' of the operations', '')}."]


def spans(line, colors):
    """The line as `(text, color)`: comments dim, names of calls and marks of changes in colors."""
    code, mark, comment = line.partition(" # ")
    sign = re.match(r"  ([~+-]) ", line)
    if sign:
        color = {"~": colors["mark"], "+": colors["good"], "-": colors["bad"]}[sign[1]]
        parts = [(line[:3], color), (line[3:], colors["text"])]
    elif line.startswith(">>> "):
        parts = [(line, colors["mark"])]
    elif mark:
        parts = [(code, colors["text"]), (mark + comment, colors["dim"])]
    else:
        parts = [(line, colors["text"])]
    return parts


def picture(width, height, body, colors, title):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{html.escape(title)}</title>"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{colors["paper"]}"/>{body}</svg>\n'
    )


def text_picture(lines, columns, colors, title):
    """Lines of a fixed-width font; `textLength` keeps the columns in every font."""
    body = []
    for number, line in enumerate(lines):
        x, y = float(EDGE), EDGE + LINE * number + 14
        for text, color in spans(line, colors):
            if text.strip():
                shown = text.lstrip(" ")
                start = x + CHARACTER * (len(text) - len(shown))
                body.append(
                    f'<text x="{start:g}" y="{y:g}" font-family="{FONT}" font-size="14" '
                    f'fill="{color}" textLength="{CHARACTER * len(shown):.1f}" style="white-space:pre">'
                    f"{html.escape(shown)}</text>"
                )
            x += CHARACTER * len(text)
    width, height = 2 * EDGE + CHARACTER * columns, 2 * EDGE + LINE * len(lines)
    return picture(width, height, "".join(body), colors, title)


def fit_picture(fits, columns, lines, colors, title):
    """Bars: the CPU time of `fit` as a share of Keras's, with the quartiles of the rounds."""
    width, height = 2 * EDGE + CHARACTER * columns, 2 * EDGE + LINE * lines
    left, right, top = 190, width - 48, 58
    scale, row = (right - left), (height - top - 12) / len(fits)
    style = f'font-family="{FONT}" font-size="14"'
    body = [
        f'<text x="{EDGE}" y="28" {style} fill="{colors["mark"]}">CPU time of fit, Keras on JAX = 1</text>',
        f'<line x1="{right:g}" y1="{top - 12}" x2="{right:g}" y2="{height - 12:g}" '
        f'stroke="{colors["bar"]}" stroke-dasharray="4 3"/>',
        f'<text x="{right:g}" y="{top - 16}" {style} fill="{colors["dim"]}" text-anchor="middle">1</text>',
    ]
    for number, fit in enumerate(fits.values()):
        low, middle, high = (left + scale * ratio for ratio in fit["ratio"])
        y = top + row * number
        center = y + row * 0.38
        # behind the line of Keras where the number would cross it
        place = max(high, middle) + 7 if high + 48 < right else right + 6
        body += [
            f'<text x="{left - 8}" y="{center + 5:g}" {style} fill="{colors["text"]}" '
            f'text-anchor="end">{fit["title"]}</text>',
            f'<rect x="{left}" y="{y:g}" width="{middle - left:.1f}" height="{row * 0.76:.1f}" rx="2" '
            f'fill="{colors["own"]}"/>',
            f'<line x1="{low:.1f}" y1="{center:.1f}" x2="{high:.1f}" y2="{center:.1f}" '
            f'stroke="{colors["text"]}" stroke-width="2"/>',
            f'<text x="{place:.1f}" y="{center + 5:g}" {style} fill="{colors["text"]}">'
            f"{fit['ratio'][1]:.2f}</text>",
        ]
    return picture(width, height, "".join(body), colors, title)


def pictures():
    """Returns the text of each file by name."""
    measured = json.loads(MEASURED.read_text())
    model = small_model()
    shown = [">>> print(model)", *str(model).splitlines()]
    changes = str(fk.transforms.diff(model, changed_model(model))).splitlines()
    changes = [">>> print(fk.transforms.diff(model, other))", *changes]
    plan = ['>>> fk.plan(model, batch, trainer, device="v5e:2x4")', *short_plan(measured["plan"])]
    wide = max(map(len, [*shown, *plan]))
    files = {}
    for mode, colors in COLORS.items():
        drawn = {
            "model": text_picture(shown, wide, colors, "A model prints as a function"),
            "diff": text_picture(
                changes, max(map(len, changes)), colors, "The difference between two models"
            ),
            "plan": text_picture(plan, wide, colors, "A plan of a training step for eight TPUs"),
            "fit": fit_picture(
                measured["fit"],
                max(map(len, changes)),
                len(changes),
                colors,
                "fit beside Keras's fit",
            ),
        }
        files |= {f"{name}-{mode}.svg": text for name, text in drawn.items()}
    return files


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
