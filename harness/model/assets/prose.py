"""Seeded grammar for the filler prose of the tiny model's corpus (pure Python, no imports to pay).

The prose is a chain of *scenes*. A scene fixes a topic (river, forest, market, ...), one person
with an adjective, one animal, one thing with an adjective and a few spots, and its sentences keep
coming back to them. So most words are well predicted from the last fifty words or so, and almost
none needs anything older: what a sliding window can and cannot do shows up in the perplexity.

Every word is lower case, words and punctuation are separated by single spaces, and each word is
one token of the shipped tokenizer, so a count of words is a count of tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

MIN_SENTENCE_WORDS = 4
"""Length of the shortest sentence ("the bird sang ."), full stop included."""

_TOPIC_TABLE = """
river | man woman fisher sailor | bird:sang,flew heron:waited,flew frog:jumped,sang
    | net boat fish oar rope stone bottle | bank bridge mill reeds island
forest | hunter girl boy woodcutter | fox:ran,hid owl:flew,watched deer:ran,waited
    | axe branch mushroom trap nest leaf arrow | path clearing oak cave hollow
market | merchant baker woman thief | dog:barked,slept goose:cried,ran pigeon:flew,waited
    | bread coin basket cloth lamp knife hat | stall square gate well corner
farm | farmer girl miller boy | horse:ran,slept cow:waited,slept hen:cried,hid
    | plough bucket fence egg wheel sack ladder | barn field yard orchard meadow
harbor | captain sailor trader man | gull:cried,flew cat:slept,watched crab:hid,ran
    | anchor sail map barrel chest bell hook | pier tower deck shore
mountain | shepherd monk traveler hunter | goat:jumped,ran eagle:flew,watched wolf:waited,hid
    | staff cloak torch flute blanket pot | ridge hut spring trail valley
castle | king queen guard knight | raven:cried,flew hound:barked,slept mouse:hid,ran
    | crown sword shield letter mirror ring flag | hall garden wall throne
village | teacher doctor widow painter | rooster:sang,cried donkey:slept,waited bee:flew,hid
    | book candle brush chair window drum | school road roof porch
station | driver nurse sister soldier | sparrow:sang,flew rat:ran,hid pony:waited,slept
    | ticket suitcase clock coat newspaper umbrella | platform bench tunnel kiosk
island | pirate princess cook sailor | parrot:cried,sang monkey:jumped,hid turtle:slept,waited
    | shell coconut spade tent telescope bone | beach lagoon hill ship
"""


def _words(text: str) -> tuple[str, ...]:
    """The words of a table."""
    return tuple(text.split())


SHE = _words("woman girl queen widow sister princess nurse")
PERSON_ADJECTIVES = _words("""
old young tired quiet brave clever poor happy lonely proud gentle hungry
""")
THING_ADJECTIVES = _words("""
small heavy broken bright dusty strange wet new dark warm plain round pretty rusty
""")
SKIES = _words("cold windy foggy rainy sunny snowy calm stormy")
TIMES = _words("morning evening night winter summer autumn")
PLURALS = _words("children neighbors strangers friends")
TOOK = _words("found lost carried cleaned dropped hid mended painted")
FELT = _words("glad afraid sad angry sure sorry")


@dataclass(frozen=True)
class Topic:
    """The words that belong together: ``animals`` maps an animal to its two verbs."""

    place: str
    people: tuple[str, ...]
    animals: tuple[tuple[str, tuple[str, ...]], ...]
    things: tuple[str, ...]
    spots: tuple[str, ...]


def _parse_topics(table: str) -> tuple[Topic, ...]:
    """Read the table above: place | people | animals with their verbs | things | spots."""
    topics = []
    for line in table.strip().replace("\n ", " ").splitlines():
        place, people, animals, things, spots = (part.strip() for part in line.split("|"))
        pairs = tuple(
            (name, tuple(verbs.split(",")))
            for name, verbs in (a.split(":") for a in animals.split())
        )
        topics.append(
            Topic(place, tuple(people.split()), pairs, tuple(things.split()), tuple(spots.split()))
        )
    return tuple(topics)


TOPICS = _parse_topics(_TOPIC_TABLE)


class ProseStream:
    """An endless story: ``sentence()`` continues it, however much other text comes in between.

    Parameters
    ----------
    rng:
        The only source of randomness; the same state gives the same story.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.topic = rng.choice(TOPICS)
        self._left: list[Callable[[], str]] = []
        self._person = ""

    def _new_scene(self) -> None:
        """Move to the next topic and cast the scene; three scenes in ten stay at their place."""
        rng = self.rng
        if rng.random() < 0.7:
            after = (TOPICS.index(self.topic) + rng.choice((1, 2))) % len(TOPICS)
            self.topic = TOPICS[after]
        topic = self.topic
        self._person = rng.choice(topic.people)
        self.who = f"the {rng.choice(PERSON_ADJECTIVES)} {self._person}"
        self.pronoun = "she" if self._person in SHE else "he"
        self.animal, self.verbs = rng.choice(topic.animals)
        self.thing = rng.choice(topic.things)
        self.look, self.other_look = rng.sample(THING_ADJECTIVES, 2)
        self.spot, self.far = rng.sample(topic.spots, 2)
        self.sky = rng.choice(SKIES)
        self.time = rng.choice(TIMES)
        middle = [
            lambda: f"{self.pronoun} {rng.choice(TOOK)} the {self.look} {self.thing} .",
            lambda: f"the {self.thing} was {self.look} and {self.other_look} .",
            lambda: f"the {self.animal} {rng.choice(self.verbs)} .",
            lambda: f"then the {self.animal} {rng.choice(self.verbs)} near the {self.spot} .",
            lambda: f"it was {self.sky} at the {self.spot} .",
            lambda: f"the {self._person} put the {self.thing} by the {self.far} .",
            lambda: f"{self.who} was {rng.choice(FELT)} .",
            lambda: f"the {rng.choice(PLURALS)} saw the {self.look} {self.thing} .",
            lambda: f"{self.pronoun} sat with the {self.animal} all {self.time} .",
            lambda: f"the {self._person} said that the {self.thing} was {self.look} .",
        ]
        beats = rng.sample(middle, rng.randint(3, 6))
        beats.insert(0, self._opening)
        if rng.random() < 0.6:
            beats.append(lambda: f"at last {self.who} went home from the {self.topic.place} .")
        self._left = beats

    def _opening(self) -> str:
        """First sentence of a scene: who goes where."""
        place, spot = self.topic.place, self.spot
        return self.rng.choice(
            (
                f"{self.who} walked to the {place} .",
                f"{self.who} came to the {spot} by the {place} .",
                f"one {self.time} {self.who} walked to the {spot} .",
            )
        )

    def sentence(self) -> str:
        """The next sentence, words separated by single spaces and ended by `` .``."""
        if not self._left:
            self._new_scene()
        return self._left.pop(0)()

    def short(self, words: int) -> str:
        """A sentence of exactly ``words`` words (4 to 7) about an animal at hand."""
        if not self._person:
            self._new_scene()
        verb = self.rng.choice(self.verbs)
        shapes = {
            4: f"the {self.animal} {verb} .",
            5: f"then the {self.animal} {verb} .",
            6: f"then the {self.animal} {verb} again .",
            7: f"the {self.animal} {verb} near the {self.spot} .",
        }
        return shapes[words]

    def exactly(self, words: int) -> list[str]:
        """Sentences of ``words`` words in all; ``words`` is 0 or at least 4."""
        if words and words < MIN_SENTENCE_WORDS:
            raise ValueError(f"no prose of {words} words: the shortest sentence has 4")
        out: list[str] = []
        while words > 7:
            sentence = self.sentence()
            left = words - len(sentence.split())
            if left < 0 or 0 < left < MIN_SENTENCE_WORDS:
                self._left.insert(0, partial(str, sentence))
                sentence = self.short(4)
                left = words - 4
            out.append(sentence)
            words = left
        if words:
            out.append(self.short(words))
        return out


def prose(rng: random.Random, sentences: int) -> str:
    """``sentences`` sentences of one story as one string, without a leading space."""
    stream = ProseStream(rng)
    return " ".join(stream.sentence() for _ in range(sentences))


def vocabulary() -> set[str]:
    """Every word the grammar can say, found by saying a lot of it."""
    stream = ProseStream(random.Random(0))
    words: set[str] = set()
    for _ in range(20000):
        words.update(stream.sentence().split())
    for n in (4, 5, 6, 7):
        words.update(stream.short(n).split())
    return words
