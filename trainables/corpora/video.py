"""The generated corpus `video`: what people ask a television for. Titles, channels and services are
invented."""

from __future__ import annotations

from trainables.corpora import values
from trainables.corpora.grammar import Grammar

GENRES = values.entries(
    "comedy|drama|action|horror|documentary|thriller|science fiction|romance|western|animated|crime|"
    "fantasy|musical|war|mystery|family|sports|cooking|nature|spy|silent|martial arts|history|"
    "superhero"
)
KINDS = (
    "movie",
    "show",
    "series",
    "film",
    "episode",
    "documentary",
    "special",
    "cartoon",
    "miniseries",
    "clip",
)
CHANNELS = values.joined(
    "north metro galaxy summit city harbor atlas echo", "news sports movies kids one two max live", " "
)
SERVICES = values.joined("stream view reel cine flick", "box hub plus time now")
DEVICES = values.entries(
    "tv|living room tv|bedroom tv|projector|tablet|kitchen screen|laptop|big screen|basement tv|"
    "den tv|phone|streaming stick|game console"
)
ROLES = ("actor", "director", "host", "writer", "producer", "narrator", "stuntman", "composer")
MOODS = values.words("funny scary sad short new old popular romantic relaxing weird violent classic foreign underrated")
LANGUAGES = values.words("english spanish french german hindi italian japanese korean portuguese arabic polish")
QUALITIES = ("hd", "four k", "low quality", "standard", "best quality", "data saver")
TEAMS = values.joined("river harbor canyon prairie bay", "hawks bears miners comets kings owls pilots", " ")
SPORTS = (
    "football",
    "basketball",
    "tennis",
    "soccer",
    "hockey",
    "golf",
    "boxing",
    "cricket",
    "snooker",
    "cycling",
)
PROFILES = ("kids", "guest", "mine", "family", "parents", "work", "weekend")
LISTS_OF_USERS = (
    "watchlist",
    "favorites",
    "queue",
    "saved list",
    "weekend list",
    "kids list",
    "rainy day list",
)

GRAMMAR = Grammar(
    name="video",
    intents={
        "play_video": (
            "<please> play {title} <thanks>",
            "<please> put on {title} on {service}",
            "i want to watch {title}",
            "<please> play season {season} of {title}",
            "<please> play {title} on the {device} <thanks>",
            "<please> watch episode {episode} of {title}",
            "<please> show {title} with {person} <thanks>",
            "let us watch {title} in {language}",
        ),
        "search_video": (
            "<please> find {genre} {kind} with {person}",
            "<please> show me {mood} {kind} from {year}",
            "<please> search {service} for {title}",
            "which {genre} {kind} has {person} in it",
            "are there {mood} {genre} {kind} about the {topic}",
            "<please> find the {kind} about the {topic} with {person}",
            "what has {person} made since {year}",
        ),
        "recommend_video": (
            "what should i watch {date} <thanks>",
            "<please> suggest a {mood} {genre} {kind}",
            "<please> recommend something like {title}",
            "we liked {title} what is next",
            "i am in the mood for a {mood} {kind} with {person}",
            "any good {genre} {kind} on {service} {date}",
        ),
        "change_channel": (
            "<please> switch to {channel} <thanks>",
            "<please> put {channel} on the {device}",
            "<please> change the channel to {channel_number} <thanks>",
            "<please> turn on {channel}",
            "channel {channel_number} <thanks>",
        ),
        "record_program": (
            "<please> record {title} <when>",
            "<please> record {title} on {channel} <thanks>",
            "<please> tape the {sport} game on {channel} <when>",
            "<please> record every episode of {title} on {channel}",
        ),
        "ask_schedule": (
            "when is {title} on",
            "what is on {channel} <when>",
            "what time does {title} start {date}",
            "is the {sport} game of the {team} on {date}",
            "when do the {team} play the {team}",
        ),
        "add_to_list": (
            "<please> add {title} to my {list}",
            "<please> save {title} for {date}",
            "<please> put {title} on the {list} of {profile}",
            "i want to see {title} later <thanks>",
        ),
        "ask_about_video": (
            "who is the {role} of {title}",
            "what is {title} about",
            "when did {title} come out",
            "is {person} in {title}",
            "how long is {title}",
            "how many seasons does {title} have",
        ),
        "skip": (
            "<please> skip {duration} <thanks>",
            "<please> go forward {duration}",
            "<please> rewind {duration} <thanks>",
            "<please> jump to the scene with {person}",
            "<please> go to minute {minute}",
        ),
        "rate_video": (
            "<please> give {title} {stars}",
            "i did not like {title} <thanks>",
            "<please> rate season {season} of {title} {stars}",
            "{title} was {mood}",
        ),
        "watch_sports": (
            "<please> show the {team} game <thanks>",
            "<please> put on {sport} with the {team}",
            "<please> play the last {team} against {team} game",
        ),
        "resume_video": (
            "<please> continue {title} <thanks>",
            "<please> go on with {title} where {person} stopped",
            "<please> resume episode {episode} of {title}",
        ),
        "buy_or_rent": (
            "<please> rent {title} on {service}",
            "<please> buy season {season} of {title}",
            "how much is {title} on {service}",
        ),
        "play_trailer": (
            "<please> play the trailer of {title}",
            "<please> show a clip of {title} with {person}",
        ),
        "turn_on_subtitles": (
            "<please> turn on {language} subtitles <thanks>",
            "<please> show {title} with {language} subtitles",
            "<please> change the audio to {language} <thanks>",
        ),
        "cast_to_device": (
            "<please> move this to the {device} <thanks>",
            "<please> send {title} to the {device}",
            "<please> cast {channel} on {device}",
        ),
        "delete_recording": (
            "<please> delete the recording of {title}",
            "<please> cancel recording {title} {date}",
            "<please> erase episode {episode} of {title}",
        ),
        "remove_from_list": (
            "<please> remove {title} from my {list}",
            "<please> take {title} off the {list} of {profile}",
        ),
        "parental_control": (
            "<please> block {channel} for {profile}",
            "<please> lock {genre} {kind} after {time}",
            "is {title} okay for {profile}",
        ),
        "set_volume": (
            "<please> set the volume to {level} <thanks>",
            "<please> turn the {device} up by {level}",
            "<please> make the {device} louder <thanks>",
        ),
        "set_quality": (
            "<please> play it in {quality} <thanks>",
            "<please> set the {device} to {quality}",
        ),
        "sleep_timer": (
            "<please> turn the {device} off in {duration}",
            "<please> stop {title} at {time}",
        ),
        "switch_profile": (
            "<please> switch to the {profile} profile <thanks>",
            "this is {person} use my profile",
        ),
        "pause": ("<please> pause <thanks>", "<please> pause {title} for {duration}"),
        "power_off": ("<please> turn it off <thanks>", "<please> turn the {device} off <thanks>"),
    },
    slots=values.SLOTS
    | {
        "title": (
            "the <adjective> <noun>",
            "<noun> of the <noun>",
            "<adjective> <noun>",
            "the <noun> 's <noun>",
            "<first> and the <adjective> <noun>",
            "<first> <last>",
            "<number> <adjective> <noun>",
            "a <noun> in <town>",
            "call the <noun>",
            "play <noun>",
            "<adjective> <noun> part <number>",
        ),
        "person": ("<first> <last>", "<first>", "<first> <adjective>", "<last>"),
        "genre": ("<genre>",),
        "kind": ("<kind>",),
        "mood": ("<mood>", "very <mood>", "<mood> and <mood>"),
        "channel": ("<channel>", "<town> <channel>"),
        "channel_number": ("<number>", "<area_code>", "<four_digits>"),
        "service": ("<service>",),
        "device": ("<device>", "<first> 's <device>"),
        "role": ("<role>",),
        "year": ("nineteen <year_in_century>", "twenty <year_in_century>", "the last <number> years"),
        "topic": ("<noun>", "<adjective> <noun>"),
        "language": ("<language>",),
        "quality": ("<quality>",),
        "team": ("<team>", "<town> <team>"),
        "sport": ("<sport>",),
        "profile": ("<profile>", "<first>"),
        "list": ("<user_list>",),
        "season": ("<number>", "one"),
        "episode": ("<number>", "the last"),
        "stars": ("<number> stars", "a thumbs up", "a thumbs down"),
        "level": ("<number>", "<number> percent"),
        "minute": ("<number>", "<area_code>"),
    },
    phrases=values.PHRASES,
    lists=values.LISTS
    | {
        "genre": GENRES,
        "kind": KINDS,
        "channel": CHANNELS,
        "service": SERVICES,
        "device": DEVICES,
        "role": ROLES,
        "mood": MOODS,
        "language": LANGUAGES,
        "quality": QUALITIES,
        "team": TEAMS,
        "sport": SPORTS,
        "profile": PROFILES,
        "user_list": LISTS_OF_USERS,
        "year_in_century": values.MINUTES + values.SMALL_NUMBERS,
    },
)
