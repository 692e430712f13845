"""Project Gutenberg's words around a book, in the forms of 1991 to today; the texts imitate real files."""

import pytest

from pipeline.prose.gutenberg import is_credit, strip_gutenberg

BOOK = "CHAPTER I\n\nDown the rabbit-hole, produced by nobody."

TODAY = f"""\ufeffThe Project Gutenberg eBook of Alice's Adventures in
Wonderland, by Lewis Carroll

This eBook is for the use of anyone anywhere in the United States.

Title: Alice's Adventures in Wonderland:
       A Tale

Author: Lewis Carroll

Release date: June 27, 2008 [eBook #11]
                Most recently updated: March 30, 2021

Language: English

Credits: Arthur DiBianca and David Widger

*** START OF THE PROJECT GUTENBERG EBOOK ALICE'S ADVENTURES IN
WONDERLAND ***




{BOOK}




*** END OF THE PROJECT GUTENBERG EBOOK ALICE'S ADVENTURES IN WONDERLAND ***

Updated editions will replace the previous one.

START: FULL LICENSE
"""

Y2004 = f"""The Project Gutenberg EBook of Alice, by Lewis Carroll

Title: Alice

Author: Lewis Carroll

Release Date: December 6, 2004 [EBook #14263]

*** START OF THIS PROJECT GUTENBERG EBOOK ALICE ***


Produced by Rick Niles, Melissa Er-Raqabi and the
Online Distributed Proofreading Team at http://www.pgdp.net


Note: Project Gutenberg also has an HTML version of this file which
includes the original illustrations.


{BOOK}


End of the Project Gutenberg EBook of Alice, by Lewis Carroll

*** END OF THIS PROJECT GUTENBERG EBOOK ALICE ***

***** This file should be named 14263-8.txt *****

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN EBOOKS**START***
Why is this "Small Print!" statement here?
*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02.11.02*END*

"""

Y2001 = f"""Project Gutenberg Etext of Alice, by Lewis Carroll
#8 in our series by Lewis Carroll

Copyright laws are changing all over the world, be sure to check
the laws for your country before redistributing these files!!!

June, 2002  [Etext #3261]

**The Legal Small Print**

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here?  You know: lawyers.

*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.12.12.00*END*



This etext was produced from the 1908 Longmans, Green, and Co.
edition by David Price, email ccx074@coventry.ac.uk



{BOOK}

End of Project Gutenberg Etext of Alice, by Lewis Carroll
"""

Y1993 = f"""**The Project Gutenberg Etext of Alice, by Lewis Carroll**

*****This file should be named alice10.txt or alice10.zip******

*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*


{BOOK}


End of The Project Gutenberg Etext of Alice
"""

UNMARKED = f"""The Project Gutenberg Etext of Alice, by Lewis Carroll

This etext may be copied freely.  Write to Project Gutenberg, Illinois.


{BOOK}


Ende dieses Project Gutenberg Etextes Alice
"""


@pytest.mark.parametrize("text", [TODAY, Y2004, Y2001, Y1993, UNMARKED])
def test_the_book_alone_stays_in_every_form(text: str) -> None:
    book, header = strip_gutenberg(text)
    assert book.strip() == BOOK
    assert header["title"].startswith("Alice")


def test_what_the_header_says() -> None:
    assert strip_gutenberg(TODAY)[1] == {
        "title": "Alice's Adventures in Wonderland: A Tale",
        "author": "Lewis Carroll",
        "language": "English",
        "number": "11",
    }
    assert strip_gutenberg(Y2001)[1] == {"title": "Alice", "author": "Lewis Carroll", "number": "3261"}


@pytest.mark.parametrize(
    "end",
    [
        "End of Project Gutenberg's Alice, by Lewis Carroll",
        "End of this Project Gutenberg Etext of Alice",
        "*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***",
        "***END OF THE PROJECT GUTENBERG EBOOK ALICE***",
        "Fin de Project Gutenberg's Alice",
        "Ende dieses Projekt Gutenberg Etextes",
        "[End of the Project Gutenberg Etext]",
        "START: FULL LICENSE",
    ],
)
def test_all_ends(end: str) -> None:
    text = f"*** START OF THIS PROJECT GUTENBERG EBOOK ALICE ***\n\n{BOOK}\n\n{end}\n\nThe licence.\n"
    assert strip_gutenberg(text)[0].strip() == BOOK


def test_several_books_in_one_file() -> None:
    book, header = strip_gutenberg(Y2004 + "\n" + TODAY)
    assert book.split() == (BOOK + "\n" + BOOK).split()
    assert header["number"] == "14263"


def test_other_texts_stay_as_they_are() -> None:
    for text in ("", "Produced by hand.\n\nText.", "He read of Project Gutenberg.\n\nEnd of the day.\n", " \n" * 50):
        assert strip_gutenberg(text) == (text, {})


def test_credits() -> None:
    for credit in (
        "Produced by Jana Srna and the Online Distributed Proofreading Team",
        "E-text prepared by Al Haines",
        "Transcribed from the 1911 edition by David Price",
        "This etext was prepared by Judith Boss.",
        "HTML version by Al Haines.",
        "Judith Smith\nheyjude@ebtech.net",
        "Produit par Carlo Traverso",
    ):
        assert is_credit(credit), credit
    for prose in (
        "The wine was produced by monks.",
        "He had prepared a speech.",
        "This book was a gift.",
        "Produced at last.",
    ):
        assert not is_credit(prose), prose


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_000_000,
        "\n" * 1_000_000,
        "*** START OF THE PROJECT GUTENBERG EBOOK\n" * 20_000,
        "*** END OF THE PROJECT GUTENBERG EBOOK\n" * 20_000,
        "Project Gutenberg" + " by" * 300_000,
        "Project Gutenberg\n" + "Title: a\n     b\n" * 60_000,
        "Produced by x\n\n" * 60_000,
        "x@" * 500_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_takes_no_long(text: str) -> None:
    strip_gutenberg(text)  # quadratic time would take minutes
