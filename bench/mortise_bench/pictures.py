"""Pictures of the figures as SVG, to stand inside a page. Their colours are the page's, by name, so the same picture serves a
dark and a light one. Widths of texts are estimates, because nothing here measures a font."""

import html
import math

WIDTH, HEIGHT, FONT, SMALL = 480, 320, 12, 10
LETTER = 0.56  # mean width of a letter, of the font's size
TICKS_MOST = 5


def colour(number):
    return f"var(--c{(number - 1) % 8 + 1})"


# ---- elements ----------------------------------------------------------------------------------------------------------


def at(value):
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def line(x1, y1, x2, y2, stroke, width=1.0, dash=""):
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{at(x1)} {at(y1)}L{at(x2)} {at(y2)}" fill="none" stroke-width="{width:g}"{dashed} '
        f'style="stroke:{stroke}"/>'
    )


def curve(points, stroke):
    path = "L".join(f"{at(x)} {at(y)}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke-width="2" style="stroke:{stroke}"/>'


def dot(x, y, fill):
    return f'<circle cx="{at(x)}" cy="{at(y)}" r="2.5" style="fill:{fill}"/>'


def box(x, y, width, height, fill):
    return f'<rect x="{at(x)}" y="{at(y)}" width="{at(width)}" height="{at(height)}" style="fill:{fill}"/>'


def text(x, y, words, anchor="start", size=FONT, turned=False):
    turn = f' transform="rotate(-90 {at(x)} {at(y)})"' if turned else ""
    return (
        f'<text x="{at(x)}" y="{at(y)}" text-anchor="{anchor}" font-size="{size}"{turn} style="fill:var(--ink)">'
        f"{html.escape(words)}</text>"
    )


def picture(title, height, parts):
    """An <svg> with a name for those who do not see it."""
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {WIDTH} {at(height)}" '
        f'font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def width_of(words, size=FONT):
    return LETTER * size * len(words)


# ---- axes --------------------------------------------------------------------------------------------------------------


def step(span):
    """Between marks of an axis, so that there are at most TICKS_MOST of them."""
    power = 10 ** math.floor(math.log10(span / TICKS_MOST)) if span > 0 else 1
    return next(power * part for part in (1, 2, 5, 10) if power * part * TICKS_MOST >= span or part == 10)


class Axis:
    """From values to pixels."""

    def __init__(self, values, low, high, logarithmic=False, from_zero=False, marks=()):
        """low, high: the pixels of its ends. marks: where the marks are; nothing: where they are round."""
        self.low, self.high, self.logarithmic = low, high, logarithmic
        least, most = min(values), max(values)
        if logarithmic:
            least, most = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(most) - 1e-9)
            most = max(most, least + 1)
            every = max(1, math.ceil((most - least) / TICKS_MOST))
            self.marks = list(marks) or [10.0**power for power in range(least, most + 1, every)]
        else:
            least = 0 if from_zero else least
            by = step(most - least or abs(most) or 1)
            least, most = by * math.floor(least / by + 1e-9), by * math.ceil(most / by - 1e-9)
            most = max(most, least + by)
            self.marks = list(marks) or [least + by * number for number in range(round((most - least) / by) + 1)]
        self.least, self.most = least, most

    def pixel(self, value):
        value = math.log10(value) if self.logarithmic else value
        return self.low + (value - self.least) / (self.most - self.least) * (self.high - self.low)


def mark_text(value):
    """Short, and rounded where the computation was not exact."""
    for unit, letter in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{letter}"
    return f"{value:,.6g}"


def x_axis(axis, y, words):
    parts = [line(axis.low, y, axis.high, y, "var(--line)")]
    for value in axis.marks:
        parts += [line(axis.pixel(value), y, axis.pixel(value), y + 4, "var(--line)")]
        parts += [text(axis.pixel(value), y + 17, mark_text(value), "middle")]
    return [*parts, text((axis.low + axis.high) / 2, y + 36, words, "middle")]


def y_axis(axis, left, right, words):
    parts = [line(left, axis.low, left, axis.high, "var(--line)")]
    for value in axis.marks:
        y = axis.pixel(value)
        parts += [line(left, y, right, y, "var(--line)", 0.5), text(left - 6, y + 4, mark_text(value), "end")]
    return [*parts, text(14, (axis.low + axis.high) / 2, words, "middle", turned=True)]


# ---- kinds of pictures -------------------------------------------------------------------------------------------------

ROW, LEFT, RIGHT = 26, 64, WIDTH - 24


def bars(title, rows, unit):
    """Rows of (label, colour number, value, least, most), from top to bottom; the thin line is from the least to the most."""
    left = min(180, 14 + max((width_of(label) for label, *_ in rows), default=0))
    bottom = 8 + ROW * len(rows)
    axis = Axis([most for *_, most in rows] or [1], left, WIDTH - 30, from_zero=True)
    parts = [line(axis.pixel(value), 8, axis.pixel(value), bottom, "var(--line)", 0.5) for value in axis.marks]
    for number, (label, kind, value, least, most) in enumerate(rows):
        middle = 8 + ROW * (number + 0.5)
        parts += [
            text(left - 6, middle + 4, label, "end"),
            box(left, middle - 9, axis.pixel(value) - left, 18, colour(kind)),
            line(axis.pixel(least), middle, axis.pixel(most), middle, "var(--ink)", 1.2),
            line(axis.pixel(least), middle - 4, axis.pixel(least), middle + 4, "var(--ink)", 1.2),
            line(axis.pixel(most), middle - 4, axis.pixel(most), middle + 4, "var(--ink)", 1.2),
        ]
    return picture(title, bottom + 44, [*parts, *x_axis(axis, bottom, unit)])


def legend(series):
    """Above the picture, in as many lines as it takes. What it is made of, and its height."""
    parts, x, y = [], LEFT, 14
    for label, number, _ in series:
        width = 30 + width_of(label, SMALL)
        if x > LEFT and x + width > RIGHT:
            x, y = LEFT, y + 15
        parts += [line(x, y - 4, x + 16, y - 4, colour(number), 2), text(x + 20, y, label, size=SMALL)]
        x += width
    return parts, y + 8


def lines(title, series, x, y, log="", points=True, events=(), from_zero="", marks=()):
    """Series of (label, colour number, [(x, y), …]). log, from_zero: which axes are so. marks: those of the x axis. events:
    (x, words)."""
    parts, top = legend(series)
    bottom = top + HEIGHT - 80
    across = Axis([px for *_, found in series for px, _ in found], LEFT, RIGHT, "x" in log, "x" in from_zero, marks)
    up = Axis([py for *_, found in series for _, py in found], bottom, top, "y" in log, "y" in from_zero)
    parts += [*x_axis(across, bottom, x), *y_axis(up, LEFT, RIGHT, y)]
    for when, words in events:
        at_x = across.pixel(when)
        parts += [line(at_x, top, at_x, bottom, "var(--ink)", 1, "3 3"), text(at_x - 4, bottom - 6, words, size=SMALL, turned=True)]
    for _, number, found in series:
        pixels = [(across.pixel(px), up.pixel(py)) for px, py in sorted(found)]
        parts.append(curve(pixels, colour(number)))
        parts += [dot(px, py, colour(number)) for px, py in pixels if points]
    return picture(title, bottom + 44, parts)
