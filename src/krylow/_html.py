"""What notebooks show of an object."""

from html import escape


def html_table(title: str, rows: dict[str, str]) -> str:
    """Return names and values as a small table for a notebook."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'<table><caption style="text-align:left"><b>{escape(title)}</b></caption>{cells}</table>'
