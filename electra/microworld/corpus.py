"""Documents of the microworld.

Document ``i`` is a pure function of (seed, i): ``random.Random`` seeded with a string is the same on every machine.
"""

from collections.abc import Iterator
from random import Random

from electra.microworld.pages import kind_page, person_page
from electra.microworld.reviews import review
from electra.microworld.stories import story
from electra.microworld.world import World

# what a document is about, by tenths
KINDS = (story,) * 11 + (review,) * 5 + (kind_page,) * 2 + (person_page,) * 2


def document(world: World, index: int) -> str:
    """Document ``index`` of a world: one sentence a line."""
    rng = Random(f"{world.seed}/document/{index}")
    return "\n".join(KINDS[int(rng.random() * len(KINDS))](rng, world))


def documents(num_documents: int, seed: int) -> Iterator[str]:
    """The first ``num_documents`` documents of the world of ``seed``."""
    world = World(seed)
    for index in range(num_documents):
        yield document(world, index)
