"""A scene as drawing code: matplotlib, SVG and TikZ. Each line says in ``gid``/``data-of`` what it draws."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from .layout import strokes_of, texts
from .scene import Mark, Scene


def owner(thing: str | Mark) -> str:
    """What a text or a mark belongs to, in words that the reader of code understands."""
    if isinstance(thing, str):
        return f"label {thing}"
    ticks = (thing.text,) if thing.kind == "equal" and thing.text else ()
    return " ".join((thing.kind, *thing.points, *ticks))


def _list(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


def to_matplotlib(scene: Scene) -> str:
    """Return a script for matplotlib; it is for people to run, and is read back without running it."""
    out = ["import matplotlib.pyplot as plt", "", "fig, ax = plt.subplots(figsize=(4, 4))"]
    for name, (x, y) in scene.points.items():
        out.append(f'ax.plot([{x:.3f}], [{y:.3f}], "ko", markersize=3, gid="point {name}")')
    for a, b in scene.segments:
        (x0, y0), (x1, y1) = scene.points[a], scene.points[b]
        out.append(f'ax.plot({_list([x0, x1])}, {_list([y0, y1])}, "k-", linewidth=1, gid="segment {a} {b}")')
    for x, y, r in scene.circles:
        out.append(f"ax.add_patch(plt.Circle(({x:.3f}, {y:.3f}), {r:.3f}, fill=False))")
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            out.append(f'ax.plot({_list(xs)}, {_list(ys)}, "k-", linewidth=0.7, gid="{owner(mark)}")')
    for text in texts(scene):
        x, y = text.at
        out.append(f'ax.text({x:.3f}, {y:.3f}, {text.text!r}, ha="center", va="center", gid="{owner(text.owner)}")')
    out += ["ax.set_xlim(0, 1)", "ax.set_ylim(0, 1)", 'ax.set_aspect("equal")', 'ax.axis("off")', "plt.show()"]
    return "\n".join(out) + "\n"


def to_svg(scene: Scene) -> str:
    """Return the scene as SVG of 1000 × 1000 units, y downwards."""

    def p(x: float, y: float) -> tuple[str, str]:
        return f"{1000 * x:.0f}", f"{1000 * (1 - y):.0f}"

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 1000" width="500" height="500">',
        '<rect width="1000" height="1000" fill="white"/>',
        '<g stroke="black" stroke-width="4" fill="none">',
    ]
    for a, b in scene.segments:
        (x0, y0), (x1, y1) = p(*scene.points[a]), p(*scene.points[b])
        out.append(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" data-of="segment {a} {b}"/>')
    for x, y, r in scene.circles:
        cx, cy = p(x, y)
        out.append(f'<circle cx="{cx}" cy="{cy}" r="{1000 * r:.0f}"/>')
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            path = " ".join(",".join(p(x, y)) for x, y in zip(xs, ys, strict=True))
            out.append(f'<polyline points="{path}" data-of="{owner(mark)}"/>')
    out += ["</g>", '<g font-family="sans-serif" font-size="42" text-anchor="middle">']
    for name, (x, y) in scene.points.items():
        cx, cy = p(x, y)
        out.append(f'<circle cx="{cx}" cy="{cy}" r="6" data-of="point {name}"/>')
    for text in texts(scene):
        x, y = p(*text.at)
        of = quoteattr(owner(text.owner))
        out.append(f'<text x="{x}" y="{y}" dy="14" data-of={of}>{escape(text.text)}</text>')
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def to_tikz(scene: Scene) -> str:
    """Return the scene as a TikZ picture of 8 cm."""
    out = ["\\begin{tikzpicture}[scale=8]"]
    out += [f"\\coordinate ({name}) at ({x:.3f},{y:.3f});" for name, (x, y) in scene.points.items()]
    out += [f"\\draw ({a}) -- ({b});" for a, b in scene.segments]
    out += [f"\\draw ({x:.3f},{y:.3f}) circle ({r:.3f});" for x, y, r in scene.circles]
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            path = " -- ".join(f"({x:.3f},{y:.3f})" for x, y in zip(xs, ys, strict=True))
            out.append(f"\\draw[thin] {path};")
    out += [f"\\fill ({name}) circle (0.006);" for name in scene.points]
    for text in texts(scene):
        says = text.text.replace("°", "^\\circ")
        out.append(f"\\node at ({text.at[0]:.3f},{text.at[1]:.3f}) {{${says}$}};")
    return "\n".join([*out, "\\end{tikzpicture}"]) + "\n"
