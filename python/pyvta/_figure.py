"""Matplotlib's figures as notebooks show them."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that shows itself in a notebook, whether or not ``pyplot`` was imported."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=96)
        return picture.getvalue()
