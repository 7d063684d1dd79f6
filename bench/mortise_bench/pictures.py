"""Pictures of the figures, drawn by gnuplot as SVG, to stand inside of a page: their colours are the page's, by name,
so that the same picture serves a dark and a light one. Without gnuplot there are none."""

import math
import re
import shutil
import subprocess

WIDTH, HEIGHT, FONT = 480, 320, 12
# Placeholders for gnuplot, and the page's names of them.
INK, GRID = "#010203", "#040506"
COLOURS = [f"#0a0b{number:02x}" for number in range(1, 9)]


def available():
    return shutil.which("gnuplot") is not None


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def draw(commands, blocks, title, height=HEIGHT):
    """An <svg> as text. blocks: data by name, a list of rows each."""
    data = "".join(
        f"${name} << END_OF_DATA\n" + "".join(" ".join(map(str, row)) + "\n" for row in rows) + "END_OF_DATA\n"
        for name, rows in blocks.items()
    )
    head = f"""
set terminal svg size {WIDTH},{height} dynamic font "sans-serif,{FONT}"
set border 3 linecolor rgb "{GRID}"
set tics nomirror textcolor rgb "{INK}"
set xlabel textcolor rgb "{INK}"
set ylabel textcolor rgb "{INK}"
set key textcolor rgb "{INK}" top left reverse Left samplen 2
set grid linecolor rgb "{GRID}" linewidth 0.5
set encoding utf8
"""
    done = subprocess.run(
        ["gnuplot"], input=data + head + commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0 or "<svg" not in done.stdout:
        raise RuntimeError(f"gnuplot: {done.stderr.strip()}")
    return for_page(done.stdout, title)


def for_page(svg, title):
    """Its colours by the page's names; no ids that two pictures would share; a title for those who do not see it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<title>.*?</title>|<desc>.*?</desc>", "", svg, flags=re.S)
    number = for_page.count = getattr(for_page, "count", 0) + 1
    svg = re.sub(r"\bid=(['\"])", rf"id=\1p{number}-", svg)
    svg = re.sub(r"url\((['\"]?)#", rf"url(\1#p{number}-", svg)
    svg = re.sub(r"xlink:href='#", f"xlink:href='#p{number}-", svg)
    names = {INK: "var(--ink)", GRID: "var(--line)"}
    names.update({colour: f"var(--c{at})" for at, colour in enumerate(COLOURS, 1)})
    for colour, name in names.items():
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        forms = (rf"rgb\(\s*{red},\s*{green},\s*{blue}\)", re.escape(colour))
        # a variable is for CSS alone: an attribute of that colour becomes a style
        for form in forms:
            svg = re.sub(rf"\b(fill|stroke)\s*=\s*(['\"])\s*{form}\s*\2", rf"style=\2\1:{name}\2", svg, flags=re.I)
            svg = re.sub(form, name, svg, flags=re.I)
    return svg.replace("<svg", f'<svg role="img" aria-label={quoted(title)}', 1)


# ---- kinds of pictures ----


def step(most):
    """Between marks of an axis, so that there are at most five."""
    power = 10 ** math.floor(math.log10(most / 5)) if most > 0 else 1
    return next(power * part for part in (1, 2, 5, 10) if power * part * 5 >= most or part == 10)


def bars(title, rows, unit):
    """Rows of (label, colour number, value, least, most); longest bar first is the caller's business."""
    data = [(len(rows) - at, value, least, most, colour) for at, (_, colour, value, least, most) in enumerate(rows)]
    labels = ", ".join(f"{quoted(label)} {len(rows) - at}" for at, (label, *_) in enumerate(rows))
    colours = sorted({colour for _, colour, *_ in rows})
    plots = [
        f"$rows using ($5 == {colour} ? $2 / 2 : NaN):1:($2 / 2):(0.36) with boxxyerror notitle "
        f'fillstyle solid 0.85 noborder linecolor rgb "{COLOURS[colour - 1]}"'
        for colour in colours
    ]
    plots.append(f'$rows using 2:1:3:4 with xerrorbars notitle pointtype 0 linewidth 1.2 linecolor rgb "{INK}"')
    commands = f"""
set ytics ({labels}) scale 0 noenhanced
set yrange [0.4:{len(rows) + 0.6}]
set xrange [0:*]
set xtics nomirror {step(max(most for *_, most in rows)):g} format "%.10g"
set xlabel {quoted(unit)}
unset key
set lmargin 22
set grid noytics
plot {", ".join(plots)}
"""
    return draw(commands, {"rows": data}, title, 70 + 26 * max(3, len(rows)))


def lines(title, series, x, y, log="", points=True, events=(), more=""):
    """Series of (label, colour number, [(x, y), …]); more: further commands."""
    blocks = {f"s{at}": rows for at, (_, _, rows) in enumerate(series)}
    style = "linespoints pointtype 7 pointsize 0.5" if points else "lines"
    plots = [
        f'$s{at} using 1:2 with {style} linewidth 2 linecolor rgb "{COLOURS[(colour - 1) % 8]}" title {quoted(label)} noenhanced'
        for at, (label, colour, _) in enumerate(series)
    ]
    marks = "".join(
        f'set arrow from first {at}, graph 0 to first {at}, graph 1 nohead dashtype 2 linecolor rgb "{INK}"\n'
        f'set label {quoted(text)} at first {at}, graph 0.03 rotate by 90 offset 0.6,0 textcolor rgb "{INK}" noenhanced\n'
        for at, text in events
    )
    commands = f"""
{f"set logscale {log}" if log else ""}
set xlabel {quoted(x)}
set ylabel {quoted(y)}
set format "%.10g"
set key above horizontal left reverse Left samplen 1 font ",10"
{marks}{more}
plot {", ".join(plots)}
"""
    return draw(commands, blocks, title)
