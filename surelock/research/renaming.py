"""Copies of stories with other names for their characters: names from all over the world, of the same gender.

If a corpus is full of Lily and Tom, the model writes Lily although the prompt says Lucy. The names are real: invented
names would teach the model to spell a name differently at every mention.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

_GIRLS = """
Emma Olivia Ava Mia Sophie Grace Ella Zoe Nora Ruby Clara Alice Hannah Rosa Eva Maya Leah Iris Tara Nina Lena Ida Greta
Priya Aisha Fatima Mei Yuki Sana Leila Amara Zuri Nia Elena Carla Luz Ines Freya Astrid Maeve Molly Poppy Holly Ivy
Hazel Willow Fern Dot Wren Tilly Lola Lulu Daisy Rosie Penny Polly Betty Mary Kate Jane Julia Laura Lisa Linda
Lucia Maria Marta Monica Naomi Olga Pia Rita Sara Selma Sofia Stella Susan Tess Thea Una Vera Violet Wendy Yara Zara
Asha Binta Chipo Esi Fanta Halima Imani Jamila Keisha Lindiwe Makena Nandi Oni Pooja Rani Sita Thandi Uma Anika Divya
Gita Indira Kavya Lakshmi Meera Neha Radha Shanti Hana Keiko Sakura Ling Xiu Yan Camila Isabel Juana Pilar Ximena
Beatriz Dolores Katya Irina Sonya Tanya Anya Ingrid Sigrid Solveig Bridget Fiona
"""
_BOYS = """
Jack Leo Oscar Noah Liam Ethan Lucas Finn Theo Henry Oliver Hugo Felix Otto Emil Ivan Omar Ali Yusuf Karim Ravi Arjun
Dev Kenji Hiro Jin Kofi Kwame Diego Mateo Luis Pablo Marco Nico Paolo Rolf Lars Sven Erik Bruno Victor Walter Peter Paul
Simon Adam Aaron Jonah Eli Levi Caleb Owen Evan Ian Neil Dean Hank Gus Ned Rex Pip Milo Otis David Daniel James John
Mark Matt Mike Nick Rob Roy Sam Steve Toby Tony Will Zach Alex Andy Bill Bob Carl Charlie Chris Dan Eric Frank Fred
George Harry Jake Jason Jim Joe Josh Kevin Kyle Luke Martin Nathan Pete Ralph Ryan Scott Abdul Bilal Hassan Ibrahim
Jamal Khalid Malik Rashid Tariq Ade Bongani Chidi Dumisani Femi Jabari Kamau Musa Sipho Tendai Ajay Anand Gopal Hari
Kiran Mohan Raj Rohan Sanjay Vijay Akira Haru Kenta Ren Taro Bao Chen Ming Wei Carlos Javier Jorge Jose Juan Miguel
Pedro Rafael Boris Dmitri Igor Misha Pavel Yuri Anders Bjorn Gustav Nils Olaf Sean
"""
_COMMON = {
    "girl": "Lily Sue Anna Amy Sally Lucy Mandy Jill",
    "boy": "Tom Ben Tim Timmy Max Tommy Billy Johnny Jimmy",
}
# Words that are written with a capital and are nobody's name.
_NOBODY = """
I Mr Mrs Ms Miss Dr Sir Lady Mom Mommy Mum Mummy Mama Dad Daddy Papa Grandma Grandpa Granny Nana Aunt Auntie Uncle God
Christmas Easter Halloween Santa Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February April May
June July August September October November December English Spanish French Africa India Earth King Queen Prince
Princess Yes No Oh Ok Okay OK Hi Hello Hey Wow Hooray Yay Ouch Ma Pa Pop Mam Baba Amma Appa Ajji Gogo Chacha Mme Tv
North South East West Indian African American Hindi Tamil
"""
NO_NAMES = frozenset(_NOBODY.split())
#: The new names, by gender.
NAMES = {"girl": _GIRLS.split(), "boy": _BOYS.split()}
_GENDERS = {name: gender for gender in NAMES for name in (*NAMES[gender], *_COMMON[gender].split())}
# capitalized words inside a sentence
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{1,11}\b")
_LOWER = re.compile(r"\b[a-z]{2,12}\b")
_FEMALE = re.compile(r"\b(?:she|her|hers|girl)\b", re.I)
_MALE = re.compile(r"\b(?:he|his|him|boy)\b", re.I)
_NEAR = 80  # characters after a name in which a pronoun is taken to mean its bearer


def find_names(stories: Iterable[str]) -> frozenset[str]:
    """Return the words that stories write with a capital inside a sentence, and hardly ever without a capital."""
    capital: Counter[str] = Counter()
    lower: Counter[str] = Counter()
    for story in stories:
        capital.update(_INSIDE.findall(story))
        lower.update(_LOWER.findall(story))
    names = {word for word, times in capital.items() if times > 4 * lower[word.lower()]}
    return frozenset(names.difference(NO_NAMES))


def gender_of(name: str, story: str) -> str | None:
    """Return "girl", "boy" or None, by the list of known names, or else by the pronouns that follow the name."""
    if name in _GENDERS:
        return _GENDERS[name]
    near = [
        story[match.end() : match.end() + _NEAR] for match in re.finditer(rf"\b{name}\b", story)
    ]
    female = sum(len(_FEMALE.findall(text)) for text in near)
    male = sum(len(_MALE.findall(text)) for text in near)
    if female > 2 * male:
        return "girl"
    return "boy" if male > 2 * female else None


def rename(story: str, names: frozenset[str], draw: Random) -> str | None:
    """Return a story with other names for its characters; None if there is no character to rename.

    A name is a character's if it occurs at least twice, never as the name of a place or a thing ("in Kenya", "the
    South"), and if its gender is known.

    names: the names in the corpus, see `find_names`. draw: draws the new names.
    """
    present = [name for name in dict.fromkeys(_INSIDE.findall(story)) if name in names]
    renamed: dict[str, str] = {}
    for name in present:
        gender = gender_of(name, story)
        times = len(re.findall(rf"\b{name}\b", story))
        if gender is None or times < 2 or re.search(rf"\b(?:in|the|an?) {name}\b(?!')", story):
            continue
        taken = {*renamed.values(), *present}
        free = [other for other in NAMES[gender] if other not in taken and other not in story]
        renamed[name] = draw.choice(free)
    if not renamed:
        return None
    pattern = rf"\b(?:{'|'.join(renamed)})\b"
    return re.sub(pattern, lambda match: renamed[match[0]], story)


def renamed_copies(stories: Sequence[str], seed: int = 0) -> list[str]:
    """Return copies with other names of all stories that have a character to rename."""
    draw = Random(seed)
    names = find_names(stories)
    copies = (rename(story, names, draw) for story in stories)
    return [copy for copy in copies if copy is not None]
