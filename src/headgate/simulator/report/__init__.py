"""What came of a replay, for people: as text, as a page, as pictures.

All of them take one `Outcome`, or two of the same traffic: before a change and after it. The page
and the pictures need matplotlib (`pip install 'headgate[plots]'`), the text needs nothing.
"""

from headgate.simulator.report.html import html_report
from headgate.simulator.report.pictures import write_pngs
from headgate.simulator.report.text import text_report

__all__ = ["html_report", "text_report", "write_pngs"]
