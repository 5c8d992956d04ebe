"""README tells the truth: its files and commands exist, and `tests/acceptance/test_documented.py` runs its code."""

import re
from pathlib import Path

from coaltree.cli import app

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LARGEST_PICTURE = 150_000
MOST_WORDS = 600


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_there_are_blocks_to_run():
    assert len(blocks("python")) >= 1


def test_the_two_commands_come_first():
    first, second = blocks("sh")[:2]
    assert first.strip() == "pip install . && coaltree demo"
    assert second.strip() == "pip install '.[test]' && pytest"


def test_it_is_short():
    """Code is not counted, nor are the addresses of links and pictures."""
    text = re.sub(r"^```.*?^```|<[^>]+>|\]\([^)]+\)", " ", README, flags=re.DOTALL | re.MULTILINE)
    assert 300 < len(text.split()) <= MOST_WORDS


def test_linked_files_exist():
    links = re.findall(r"\]\(([^)#:]+)\)|src=\"([^\":]+)\"", README)
    targets = {REPOSITORY / (link or source) for link, source in links}
    assert targets
    assert not [target for target in targets if not target.exists()]


def test_pictures_are_small():
    pictures = sorted((REPOSITORY / "docs" / "images").glob("*.png"))
    assert pictures
    assert all(picture.stat().st_size < LARGEST_PICTURE for picture in pictures)


def test_named_commands_exist():
    known = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    assert set(re.findall(r"`coaltree (\w+)", README)) <= known
