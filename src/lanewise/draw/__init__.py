"""Pictures of layouts, instructions, operands, atoms and bank maps, as SVG, HTML, LaTeX and text.

What is drawn comes from the rooms below; this one only shows it.
"""

from lanewise.draw.banks import BankMap, bank_map
from lanewise.draw.layouts import TVLayout, tv
from lanewise.draw.options import Options
from lanewise.draw.picture import Picture
from lanewise.draw.render import html, latex, print_latex, save, svg, text

__all__ = [
    "BankMap",
    "Options",
    "Picture",
    "TVLayout",
    "bank_map",
    "html",
    "latex",
    "print_latex",
    "save",
    "svg",
    "text",
    "tv",
]
