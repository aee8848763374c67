"""How the pictures of the gallery look: all in the same frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from scripts.pictures.gallery.traffic import SECONDS, Course
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from scripts.pictures.gallery.subjects import Subject

IMAGES: Final = Path(__file__).parents[3] / "docs" / "img"
ADMITTED: Final = "#2f6fb0"
REFUSED: Final = "#c2410c"
CAME: Final = "#b8bec6"
STATE: Final = "#3b7a57"
ROW: Final = 9.0
"""Inches that all pictures are wide."""


def draw_subject(subject: Subject, course: Course, target: Path) -> None:
    """What came, what went on and what was refused; below, what the algorithm goes by."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(ROW, 3.8), layout="constrained", sharex=True, height_ratios=(2, 3)
    )
    marks(above, course)
    above.set_title(f"{subject.title}: {subject.limit}", loc="left", fontsize=11, fontweight="bold")
    above.set_title(summary(course), loc="right", fontsize=10, color=GREY)
    _state(below, subject, course)
    save(figure, target)


def summary(course: Course) -> str:
    """The figures of a picture."""
    return (
        f"{len(course.admitted)} admitted, {len(course.refused)} refused; "
        f"most in any 10 s: {course.most_in_a_window}"
    )


def marks(axes: Axes, course: Course) -> None:
    """A line for each that came, below it a line when one went on, below that the refused."""
    axes.vlines(course.came, 2.15, 2.95, color=CAME, linewidth=1.3)
    axes.vlines(course.admitted, 1.1, 1.9, color=ADMITTED, linewidth=1.6)
    crosses(axes, course.refused, lowest=0.2, step=0.2)
    axes.set_ylim(0, 3)
    axes.set_xlim(0, SECONDS)
    axes.set_yticks([2.55, 1.5, 0.5], ["come", "admitted", "refused"])
    for label, colour in zip(axes.get_yticklabels(), (GREY, ADMITTED, REFUSED), strict=True):
        label.set_color(colour)
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def crosses(axes: Axes, times: list[float], *, lowest: float, step: float) -> None:
    """A cross at each of *times*, at four heights in turn: beside each other they overlap."""
    heights = [lowest + step * (n % 4) for n in range(len(times))]
    axes.plot(times, heights, "x", color=REFUSED, markersize=4.5, markeredgewidth=1.4)


def _state(axes: Axes, subject: Subject, course: Course) -> None:
    times, states = zip(*course.state, strict=True)
    step: Literal["post"] | None = "post" if subject.is_stepped else None
    axes.fill_between(times, states, step=step, color=STATE, alpha=0.25, linewidth=0)
    axes.plot(
        times, states, drawstyle=f"steps-{step}" if step else None, color=STATE, linewidth=1.3
    )
    axes.axhline(subject.bound, color=GREY, linewidth=1, linestyle="--")
    axes.annotate(
        subject.bound_title,
        (SECONDS, subject.bound),
        (-2, 2),
        textcoords="offset points",
        ha="right",
        color=GREY,
    )
    for boundary in range(10, SECONDS, 10):
        axes.axvline(boundary, color=GREY, linewidth=0.7, linestyle=":")
    axes.set_ylim(0, subject.bound * 1.25)
    axes.set_yticks([0, subject.bound / 2, subject.bound])
    axes.set_title(subject.state_title, loc="left", fontsize=10, color=STATE)
    axes.set_xlabel("seconds")


def draw_overview(courses: list[tuple[Subject, Course]], target: Path) -> None:
    """All of them, one below the other."""
    figure, rows = plt.subplots(
        len(courses) + 1,
        1,
        figsize=(ROW, 0.8 * len(courses) + 1.2),
        sharex=True,
        layout="constrained",
    )
    rows[0].vlines(courses[0][1].came, 0.1, 0.9, color=CAME, linewidth=1.3)
    rows[0].set_title(
        f"{len(courses[0][1].came)} requests come; each limit is about 10 in 10 s",
        loc="left",
        fontsize=10,
        color=GREY,
    )
    for axes, (subject, course) in zip(rows[1:], courses, strict=True):
        axes.vlines(course.admitted, 0.5, 0.95, color=ADMITTED, linewidth=1.6)
        crosses(axes, course.refused, lowest=0.1, step=0.09)
        axes.set_title(subject.title, loc="left", fontsize=10, fontweight="bold")
        axes.set_title(
            f"{len(course.admitted)} admitted, {len(course.refused)} refused; "
            f"at most {course.most_in_a_window} in 10 s, {course.most_within(1)} in 1 s",
            loc="right",
            fontsize=9,
            color=GREY,
        )
    for axes in rows:
        axes.set_ylim(0, 1)
        axes.set_xlim(0, SECONDS)
        axes.set_yticks([])
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.spines["bottom"].set_color(CAME)
    rows[-1].set_xlabel("seconds")
    save(figure, target)
