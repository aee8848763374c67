"""Draw docs/img/gallery-*.png: `python -m scripts.pictures.gallery`."""

from __future__ import annotations

from scripts.pictures.gallery.attack import draw_attack
from scripts.pictures.gallery.drawing import IMAGES, draw_overview, draw_subject
from scripts.pictures.gallery.storm import draw_storm
from scripts.pictures.gallery.subjects import ALL, run


def main() -> None:
    courses = [(subject, run(subject)) for subject in ALL]
    for subject, course in courses:
        draw_subject(subject, course, IMAGES / f"gallery-{subject.name}.png")
    draw_overview(courses, IMAGES / "gallery-overview.png")
    draw_attack(IMAGES / "gallery-boundary-attack.png")
    draw_storm(IMAGES / "gallery-retry-storm.png")


if __name__ == "__main__":
    main()
