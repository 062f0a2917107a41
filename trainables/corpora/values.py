"""Value lists that more than one domain of the generated corpora draws from: everyday or made-up words."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def entries(text: str) -> tuple[str, ...]:
    """The entries of a text that stand between bars."""
    return tuple(text.split("|"))


def joined(heads: str, tails: str, between: str = "") -> tuple[str, ...]:
    """Every head with every tail, so that neighbours differ in their heads."""
    return tuple(f"{head}{between}{tail}" for tail in tails.split() for head in heads.split())


def scattered(count: int, step: int, form: str) -> tuple[str, ...]:
    """The numbers below `count` in an order without pattern; `step` and `count` have no common divisor."""
    return tuple(form.format((number * step + step // 3) % count) for number in range(count))


FIRST_NAMES = words(
    "anna ben carla david emma felix grace hugo iris jonas kate liam maria noah olga peter quinn "
    "rosa sam tara uma victor wendy xavier yara zoe adam bella chris diana eric fiona george hannah "
    "ivan julia kevin laura mark nina oscar paula ralph sofia tom ursula vera will yusuf zara amir "
    "bianca carlos dora elena frank gina harry isabel jack karim lena miguel nadia omar petra raj "
    "sara theo usha vikram walter ximena yan zainab aisha bruno chloe dev esther farid greta henrik "
    "ines jamal kiran leo mina nils odette priya rafael selma tariq ulla viola wanda yuki zeno abel "
    "beth cora dirk edith faye glen hope ida joan kurt lucy max nora otto pam rita saul tess vince "
    "ada bert cleo dean elsa finn gwen hans ivy jade kay lars may ned opal pia ruth stan troy vic "
    "april june rose dawn bill mark art pat drew penny rob sandy victoria will grant chase"
)
LAST_NAMES = joined(
    "ash brook clay dun east fair green hart iron kings lang marsh nor oak pem quarn red stan thorn under "
    "vale west wood yar black cole dray ells farn gold holm jarr keld lind mill",
    "ton ley field well man ford wood by worth brook more land ham son stone gate bridge shaw wick dale",
)
RELATIONS = entries(
    "mom|dad|wife|husband|sister|brother|boss|grandma|grandpa|daughter|son|uncle|aunt|neighbor|"
    "roommate|landlord|doctor|dentist|lawyer|coach|cousin|niece|nephew|mother in law|father in law|"
    "best friend|girlfriend|boyfriend|manager|assistant|babysitter|plumber|accountant|teacher|trainer"
)
TOWNS = joined(
    "new old north south lake port fort mount east west glen upper lower saint grand",
    "haven aldon bramley corwin delmar eastlin farrow galen harrow ilford jasper kelso lorne marlow nevis "
    "orrin pelham quenby ronan selby tarrin ulster varley wexham yarrow zennor",
    " ",
)
WEEKDAYS = ("monday", "friday", "saturday", "sunday", "tuesday", "wednesday", "thursday")
MONTHS = words("january february march april may june july august september october november december")
PARTS_OF_DAY = ("morning", "evening", "afternoon", "night")
SMALL_NUMBERS = words("two one three five ten four six twenty eight seven thirty fifteen nine twelve forty fifty")
HOURS = words("eight nine seven six ten five three two four one eleven twelve")
MINUTES = entries("thirty|fifteen|forty five|twenty|ten|o'clock|fifty|forty|twenty five|oh five|thirty five")
DAYS_OF_MONTH = entries(
    "first|second|third|fourth|fifth|tenth|fifteenth|twentieth|sixth|seventh|eighth|ninth|eleventh|"
    "twelfth|thirteenth|fourteenth|sixteenth|seventeenth|eighteenth|nineteenth|twenty first|"
    "twenty second|twenty third|twenty fourth|twenty fifth|twenty sixth|twenty seventh|twenty eighth|"
    "twenty ninth|thirtieth|thirty first"
)
UNITS_OF_TIME = ("minutes", "hours", "days", "weeks", "seconds", "months")
FOUR_DIGITS = scattered(10_000, 7_919, "{:04d}")
AREA_CODES = scattered(800, 523, "{:03d}")
ADJECTIVES = words(
    "last silent golden broken hidden little dark lost wild blue crimson endless hollow quiet "
    "burning frozen secret distant empty gentle crooked bitter velvet electric paper savage sleeping "
    "wandering scarlet forgotten northern hungry lonely stolen painted borrowed midnight restless "
    "tender second winter summer perfect ordinary missing"
)
NOUNS = words(
    "river house garden mountain letter summer winter road ocean mirror forest stranger crown island "
    "daughter shadow city train kitchen harbor lantern window call doctor message hour season "
    "channel orchard captain bridge cathedral meadow thief sister machine piano hotel desert clock "
    "painter wolf empire storm planet village circus fortune witness signal station harvest carnival "
    "detective lighthouse prescription"
)

SLOTS: dict[str, tuple[str, ...]] = {
    "date": (
        "tomorrow",
        "today",
        "<weekday>",
        "next <weekday>",
        "<weekday> <day_part>",
        "this weekend",
        "the <day_of_month>",
        "<month> <day_of_month>",
        "next week",
        "the <day_of_month> of <month>",
        "in <number> days",
    ),
    "time": ("<hour> <minute>", "<hour> pm", "<hour> am", "<hour> <minute> pm", "noon", "midnight", "<hour>"),
    "duration": ("<number> <time_unit>", "half an hour", "an hour", "a <number> hour stretch"),
}
PHRASES: dict[str, tuple[str, ...]] = {
    "when": ("{date}", "at {time}", "{date} at {time}", "on {date}", "at {time} {date}"),
}
LISTS: dict[str, tuple[str, ...]] = {
    "first": FIRST_NAMES,
    "last": LAST_NAMES,
    "relation": RELATIONS,
    "town": TOWNS,
    "weekday": WEEKDAYS,
    "month": MONTHS,
    "day_part": PARTS_OF_DAY,
    "number": SMALL_NUMBERS,
    "hour": HOURS,
    "minute": MINUTES,
    "day_of_month": DAYS_OF_MONTH,
    "time_unit": UNITS_OF_TIME,
    "four_digits": FOUR_DIGITS,
    "area_code": AREA_CODES,
    "adjective": ADJECTIVES,
    "noun": NOUNS,
    "please": (
        "",
        "please",
        "can you",
        "could you",
        "hey",
        "i want you to",
        "would you please",
        "okay now",
        "can you please",
        "hi there",
        "i need you to",
        "go ahead and",
        "would you mind if you",
        "quickly",
        "um",
        "so",
        "listen",
        "if you can",
        "do me a favor and",
        "be so kind and",
    ),
    "thanks": (
        "",
        "please",
        "now",
        "thanks",
        "for me",
        "right away",
        "will you",
        "thank you",
        "when you can",
        "again",
    ),
}
