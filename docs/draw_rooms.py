"""Draw the rooms of the four packages from their imports: `python docs/draw_rooms.py`.

A room is above everything that it imports. Arrows that follow from others are left out: if a imports b and b imports
c, no arrow from a to c is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import grimp
from scipy.optimize import isotonic_regression

PICTURE = Path(__file__).parent / "images" / "rooms.svg"
PACKAGES = ("dashboards", "sweeps", "trainables", "edp")
COLUMNS = (PACKAGES[:2], PACKAGES[2:])
FILL = {"dashboards": "#fdf0d5", "sweeps": "#dcebf7", "trainables": "#e2f2e1", "edp": "#f6e3ea"}

BOX, HEIGHT, ROW, GAP, BEND = 112, 28, 58, 12, 10
"""Pixels: width and height of a box, distance of two rows, gap between boxes, and the width of a passing arrow."""
HEAD, MARGIN = 48, 16

Edge = tuple[str, str]


class Layout(NamedTuple):
    """The layout of a package: middle and row (counted from below) of each room, and the points of each arrow."""

    places: dict[str, tuple[float, int]]
    ways: list[list[tuple[float, int]]]


def imports_of(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Return, for each room of a package, the rooms of the same package that it imports."""
    rooms = sorted(graph.find_children(package))
    return {
        a: {b for b in rooms if a != b and graph.direct_import_exists(importer=a, imported=b, as_packages=True)}
        for a in rooms
    }


def rows_of(imports: dict[str, set[str]]) -> dict[str, int]:
    """Return the row of each room, counted from below: one above the highest room that it imports."""
    rows: dict[str, int] = {}

    def row(room: str) -> int:
        if room not in rows:
            rows[room] = max((row(other) + 1 for other in imports[room]), default=0)
        return rows[room]

    for room in imports:
        row(room)
    return rows


def direct(imports: dict[str, set[str]]) -> list[Edge]:
    """Return the imports that do not follow from others."""

    def reached(room: str) -> set[str]:
        return imports[room].union(*(reached(other) for other in imports[room]))

    return [
        (room, other)
        for room, others in imports.items()
        for other in sorted(others)
        if not any(other in reached(between) for between in others)
    ]


def laid_out(imports: dict[str, set[str]]) -> Layout:
    """Lay out a package: rows by import, and in each row an order and places that keep arrows short."""
    rows, edges = rows_of(imports), direct(imports)
    # An arrow over several rows takes a place in each row that it passes: (arrow, row).
    ways = [
        [edge[0], *(f"{edge} {row}" for row in range(rows[edge[0]] - 1, rows[edge[1]], -1)), edge[1]] for edge in edges
    ]
    row_of = dict(rows)
    for way in ways:
        for step, name in enumerate(way):
            row_of[name] = rows[way[0]] - step
    beside: dict[str, list[str]] = {name: [] for name in row_of}
    for way in ways:
        for above, below in pairwise(way):
            beside[above].append(below)
            beside[below].append(above)
    levels = [sorted(name for name in row_of if row_of[name] == row) for row in range(max(row_of.values()) + 1)]
    x = {name: float(place) for level in levels for place, name in enumerate(level)}
    for sweep in range(24):
        for level in levels if sweep % 2 else reversed(levels):
            wanted = {name: mean(x[other] for other in beside[name]) if beside[name] else x[name] for name in level}
            level.sort(key=lambda name: (wanted[name], name))
            x |= _apart(level, wanted, rows)
    middle = (min(x.values()) + max(x.values())) / 2
    x = {name: round(value - middle) for name, value in x.items()}
    return Layout(
        {room: (x[room], rows[room]) for room in imports}, [[(x[name], row_of[name]) for name in way] for way in ways]
    )


def _apart(level: list[str], wanted: dict[str, float], rooms: Iterable[str]) -> dict[str, float]:
    """Return places without overlap, in the order of `level`: the nearest to the wanted ones, by least squares."""
    half = [(BOX if name in rooms else BEND) / 2 for name in level]
    offsets = list(accumulate((a + GAP + b for a, b in pairwise(half)), initial=0.0))
    found = isotonic_regression([wanted[name] - offset for name, offset in zip(level, offsets, strict=True)]).x
    return {name: float(x) + offset for name, x, offset in zip(level, found, offsets, strict=True)}


def drawn(graph: grimp.ImportGraph) -> str:
    """Return the picture as SVG."""
    layouts = {package: laid_out(imports_of(graph, package)) for package in PACKAGES}
    heights = {p: HEAD + ROW * (1 + max(row for _, row in layouts[p].places.values())) for p in PACKAGES}
    parts, left, below = [], MARGIN, 0
    for column in COLUMNS:
        top = MARGIN
        wide = round(max(2 * abs(x) for package in column for x, _ in layouts[package].places.values())) + BOX
        wide += 4 * MARGIN
        for package in column:
            parts += _panel(package, layouts[package], left, top, wide, heights[package])
            top += heights[package] + 2 * MARGIN
        # The package below, and for the last of a column the one beside it.
        middle, foot = left + wide / 2, MARGIN + heights[column[0]]
        parts.append(_arrow([(middle, foot), (middle, foot + 2 * MARGIN)], 3))
        if column != COLUMNS[-1]:
            side = foot + 2 * MARGIN + HEAD / 2
            parts.append(_arrow([(left + wide, side), (left + wide + 2 * MARGIN, side)], 3))
        left, below = left + wide + 2 * MARGIN, max(below, top)
    width, total = left - MARGIN, below - MARGIN
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;font-size:14px;fill:#1b1f24;text-anchor:middle}"
        ".package{font-size:16px;font-weight:bold}path{fill:none;stroke:#57606a}"
    )
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
        'markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8 z" style="fill:#57606a"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}">',
            "<title>The rooms of the four packages, each above what it imports</title>",
            f"<style>{style}</style><defs>{marker}</defs>",
            f'<rect width="{width}" height="{total}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _panel(package: str, layout: Layout, left: float, top: float, width: float, height: float) -> list[str]:
    def at(place: tuple[float, int]) -> tuple[float, float]:
        return left + width / 2 + place[0], top + height - ROW * (place[1] + 0.5)

    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{FILL[package]}"/>',
        f'<text class="package" x="{left + width / 2}" y="{top + 26}">{package}</text>',
    ]
    for way in layout.ways:
        points = [at(place) for place in way]
        points[0] = points[0][0], points[0][1] + HEIGHT / 2
        points[-1] = points[-1][0], points[-1][1] - HEIGHT / 2
        parts.append(_arrow(points, 1.5))
    for room, place in layout.places.items():
        x, y = at(place)
        parts.append(
            f'<rect x="{x - BOX / 2:g}" y="{y - HEIGHT / 2:g}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#ffffff" '
            f'stroke="#57606a"/><text x="{x:g}" y="{y + 5:g}">{room.rpartition(".")[2]}</text>'
        )
    return parts


def _arrow(points: list[tuple[float, float]], width: float) -> str:
    """Return a smooth line through the points that leaves and enters upright; a level one is straight."""
    # The direction of the line at each inner point: from the point before to the one after.
    slopes = [0.0, *((c[0] - a[0]) / (c[1] - a[1]) for a, c in zip(points, points[2:], strict=False)), 0.0]
    d = f"M{points[0][0]:g} {points[0][1]:g}"
    for ((x0, y0), s0), ((x1, y1), s1) in pairwise(zip(points, slopes, strict=True)):
        bend = (y1 - y0) / 2
        d += f" C{x0 + s0 * bend:g} {y0 + bend:g} {x1 - s1 * bend:g} {y1 - bend:g} {x1:g} {y1:g}"
    return f'<path d="{d}" stroke-width="{width}" marker-end="url(#tip)"/>'


def current() -> str:
    """Return the picture of the present imports."""
    return drawn(grimp.build_graph(*PACKAGES, cache_dir=None))


if __name__ == "__main__":
    PICTURE.write_text(current(), encoding="utf-8")
