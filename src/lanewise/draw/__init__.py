"""Pictures of layouts, instructions, atoms, bank maps, descriptors, tensor maps: SVG, HTML, LaTeX, text.

What is drawn comes from the rooms below; this one only shows it.
"""

from lanewise.draw.banks import BankMap, bank_map
from lanewise.draw.layouts import TVLayout, tv
from lanewise.draw.options import Options
from lanewise.draw.picture import Picture
from lanewise.draw.render import html, latex, print_latex, save, svg, text
from lanewise.draw.shared_memory import DescribedMatrix, described_matrix
from lanewise.hints import not_called
from lanewise.tracebacks import short_functions

#: What serves in place of names of other libraries.
INSTEAD = dict.fromkeys(
    ("show", "plot", "display", "draw", "figure"),
    'save(thing, "picture.svg") draws it, print(text(thing)) prints it, and a notebook shows it',
)
__all__ = [
    "BankMap",
    "DescribedMatrix",
    "Options",
    "Picture",
    "TVLayout",
    "bank_map",
    "described_matrix",
    "html",
    "latex",
    "print_latex",
    "save",
    "svg",
    "text",
    "tv",
]

short_functions(__name__)
not_called(
    __name__, 'lanewise.draw.save(thing, "picture.svg") writes a picture, lanewise.draw.svg(thing) returns it'
)
