"""A page with a picture in it, complete in one file, for a browser; the picture itself is SVG's business."""

from __future__ import annotations

from lanewise.draw.write_svg import xml


def to_html(svg: str, title: str) -> str:
    """A standalone page with an SVG picture.

    >>> "<title>mma</title>" in to_html("<svg/>", "mma")
    True
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{xml(title)}</title>\n"
        "<style>body { margin: 0; background: #fff; color: #1a1a1a; } svg { display: block; }</style>\n"
        f"</head>\n<body>\n{svg}</body>\n</html>\n"
    )
