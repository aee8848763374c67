"""The boundary attack: all that a window allows just before it ends, and again just after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.units import MILLISECOND, SECOND
from scripts.pictures.gallery.drawing import ADMITTED, ROW, crosses
from scripts.pictures.gallery.subjects import SUBJECTS, course_of
from scripts.pictures.gallery.traffic import QUOTA, WINDOW, Course
from scripts.pictures.overload.drawing import GREY, plt, save

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from scripts.pictures.gallery.subjects import Subject

ATTACKED: Final = SUBJECTS[:4]
"""The three windows, and the bucket that most use instead."""
UNTIL: Final = 33
_AROUND_NS: Final = 150 * MILLISECOND
_BOUNDARIES: Final = (10, 20, 30)


def attack() -> list[int]:
    """A whole quota in a second and a half on both sides of each boundary, in nanoseconds."""
    return sorted(
        boundary * SECOND + side * (n * _AROUND_NS + MILLISECOND)
        for boundary in _BOUNDARIES
        for side in (-1, 1)
        for n in range(QUOTA)
    )


def attacked(subject: Subject) -> Course:
    """What *subject* makes of it."""
    return course_of(subject, attack(), UNTIL)


def draw_attack(target: Path) -> None:
    """The four limits below each other, with the worst ten seconds of each marked."""
    figure, rows = plt.subplots(
        len(ATTACKED), 1, figsize=(ROW, 5.4), sharex=True, layout="constrained"
    )
    for axes, subject in zip(rows, ATTACKED, strict=True):
        _row(axes, subject, attacked(subject))
    rows[-1].set_xlabel("seconds (dotted: where the windows meet)")
    save(figure, target)


def _row(axes: Axes, subject: Subject, course: Course) -> None:
    worst = max(course.admitted, key=lambda began: course.within(began, WINDOW))
    axes.axvspan(worst, worst + WINDOW, ymax=0.97, color=ADMITTED, alpha=0.12, linewidth=0)
    axes.vlines(course.admitted, 0.5, 0.95, color=ADMITTED, linewidth=1.6)
    crosses(axes, course.refused, lowest=0.1, step=0.09)
    axes.text(
        worst + WINDOW / 2,
        0.72,
        f"{course.within(worst, WINDOW)} in 10 s",
        ha="center",
        va="center",
        color=ADMITTED,
        fontweight="bold",
    )
    for boundary in _BOUNDARIES:
        axes.axvline(boundary, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_title(f"{subject.title}: {subject.limit}", loc="left", fontsize=10, fontweight="bold")
    axes.set_title(
        f"{len(course.admitted)} admitted, {len(course.refused)} refused",
        loc="right",
        fontsize=9,
        color=GREY,
    )
    axes.set_xlim(8, UNTIL)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
