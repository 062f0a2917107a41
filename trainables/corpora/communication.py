"""The generated corpus `communication`: calls, messages, mail and contacts."""

from __future__ import annotations

from trainables.corpora import values
from trainables.corpora.grammar import Grammar

TOPICS = values.entries(
    "the rent|dinner|the meeting|the budget|the party|her birthday|the invoice|the contract|the trip|"
    "the keys|the car|the last call|the school play|the doctor|the new printer|the wedding|"
    "the kitchen sink|the report|the deadline|the broken window|the dog|the tickets|the lease|"
    "the message|the interview|the garden|the delivery|the concert|the reunion|the insurance|"
    "the game|the missing parcel|the voicemail"
)
OPENINGS = values.entries(
    "i am running late|i will call you back|see you there|i am on my way|dinner is ready|"
    "do not wait for me|i got your message|we are out of milk|the train is late|happy birthday|"
    "good luck with it|i am at the office|can we move it|thanks for the call|i left the keys|"
    "please bring the papers|the code has changed|i miss you|you were right|i cannot make it|"
    "i found a parking spot|the kids are asleep|let us meet|i need more time|i paid the bill|"
    "the flight was canceled|call me first|it went well|we should talk|i have bad news"
)
ADDITIONS = values.entries(
    "by ten minutes|about that later|before the meeting|in front of the house|at the usual place|"
    "after work|next to the bakery|with your brother|near the station|on the second floor|"
    "as soon as i can|tonight|in the kitchen|and thank you|if that is fine|because of the rain|"
    "for the neighbors|around noon|from the shop|without the car|at the north gate|until friday|"
    "under the mat|on my own|for once|as planned|instead of monday"
)
DEVICES = (
    "speaker",
    "phone",
    "headset",
    "tablet",
    "car",
    "kitchen speaker",
    "watch",
    "office phone",
    "laptop",
)
SERVICES = ("text", "email", "chat", "video chat", "pager", "work chat", "group chat", "radio")
LABELS = ("home", "work", "mobile", "office", "cell", "second", "emergency", "vacation", "old")
GROUPS = values.joined(
    "family work soccer school book office running cooking neighborhood chess garden band",
    "group team list chat club parents friends",
    " ",
)
FOLDERS = (
    "inbox",
    "spam",
    "archive",
    "drafts",
    "trash",
    "receipts",
    "family",
    "travel",
    "newsletters",
    "taxes",
)
TONES = values.joined("marimba chime bell piano whistle echo harp drum", "one classic soft loud two night", " ")

GRAMMAR = Grammar(
    name="communication",
    intents={
        "send_message": (
            "<please> tell {contact} {message} <thanks>",
            "<please> send a message to {contact} saying {message}",
            "<please> text {contact} that {message}",
            "<please> send {contact} {service} {message}",
            "<please> message {contact} {message} <thanks>",
            "<please> let {contact} know {message}",
            "<please> reach {contact} by {service} and say {message}",
        ),
        "call_contact": (
            "<please> call {contact} <thanks>",
            "<please> dial {phone_number}",
            "<please> call {contact} on {label}",
            "<please> get {contact} on the {device}",
            "<please> ring {contact} 's {label} number",
            "<please> phone {contact} <when>",
            "<please> give {contact} a call from the {device} <thanks>",
            "<please> make a call to {phone_number} <thanks>",
        ),
        "read_messages": (
            "<please> read my messages from {contact} <thanks>",
            "what did {contact} say about {topic}",
            "<please> read the last {service} from {contact}",
            "any messages from {contact} {date}",
            "did {contact} text me about {topic} <thanks>",
            "<please> show what {contact} wrote {date}",
        ),
        "send_email": (
            "<please> email {contact} about {topic} <thanks>",
            "<please> write an email to {contact} about {topic} saying {message}",
            "<please> send {contact} mail with subject {topic}",
            "<please> send mail to {contact} {message}",
            "<please> mail {group} about {topic}",
        ),
        "add_contact": (
            "<please> add {contact} to my contacts with {phone_number}",
            "<please> save {phone_number} as {contact}",
            "<please> create a contact {contact} <thanks>",
            "<please> put {contact} with number {phone_number} in my address book",
            "new contact {contact} {label} number {phone_number}",
        ),
        "reply_message": (
            "<please> reply {message}",
            "<please> answer {contact} {message}",
            "<please> write back to {contact} that {message}",
            "<please> respond with {message} <thanks>",
            "<please> reply to the last {service} saying {message}",
        ),
        "schedule_call": (
            "<please> schedule a call with {contact} <when>",
            "<please> set up a call with {contact} about {topic} <when>",
            "<please> remind me to call {contact} <when>",
            "<please> plan a {duration} call with {contact} {date}",
        ),
        "check_voicemail": (
            "<please> play my voicemail from {contact}",
            "<please> check voicemail <thanks>",
            "did {contact} leave a message {date}",
            "<please> play the message that {contact} left",
            "<please> listen to voicemail from {phone_number}",
        ),
        "find_contact": (
            "what is the {label} number of {contact}",
            "<please> find {contact} in my contacts",
            "<please> look up {contact} <thanks>",
            "do i have a number for {contact} in {town}",
            "whose number is {phone_number}",
        ),
        "show_call_log": (
            "<please> show missed calls from {contact}",
            "who called {date} <thanks>",
            "did {contact} call me {date}",
            "when did i last call {contact}",
            "<please> show calls longer than {duration}",
        ),
        "search_email": (
            "<please> find the email about {topic} from {contact}",
            "<please> search {folder} for {topic}",
            "is there mail from {contact} in {folder}",
            "which emails came in {date} about {topic}",
        ),
        "send_to_group": (
            "<please> tell {group} {message}",
            "<please> post {message} to {group}",
            "<please> announce to {group} that {message}",
        ),
        "forward_message": (
            "<please> forward it to {contact} <thanks>",
            "<please> forward the email about {topic} to {contact}",
            "<please> pass the last {service} from {contact} on to {contact}",
        ),
        "delete_contact": (
            "<please> delete {contact} from my contacts",
            "<please> remove the {label} number of {contact}",
            "<please> erase {phone_number} <thanks>",
        ),
        "block_contact": (
            "<please> block {contact} <thanks>",
            "<please> block calls from {phone_number}",
            "i never want to hear from {contact} again",
        ),
        "start_video_call": (
            "<please> start a video call with {contact} <thanks>",
            "<please> video call {contact} on the {device}",
            "<please> face call {contact} and {contact}",
        ),
        "delete_messages": (
            "<please> delete the messages from {contact}",
            "<please> delete every {service} about {topic}",
            "<please> clear my {folder} <thanks>",
        ),
        "do_not_disturb": (
            "<please> hold all calls for {duration} <thanks>",
            "<please> mute {contact} until {time}",
            "do not disturb me until {time} {date}",
            "<please> silence {group} for {duration}",
        ),
        "create_group": (
            "<please> make a group {group} with {contact} and {contact}",
            "<please> add {contact} to {group}",
            "<please> create the group {group} <thanks>",
        ),
        "set_ringtone": (
            "<please> set the ringtone of {contact} to {ringtone}",
            "<please> use {ringtone} for calls from {group}",
        ),
        "transfer_call": (
            "<please> move this call to the {device} <thanks>",
            "<please> put the call through to {contact}",
        ),
        "switch_speaker": (
            "<please> turn {device} on for this call <thanks>",
            "<please> put {contact} on {device}",
        ),
        "answer_call": (
            "<please> answer the call <thanks>",
            "<please> pick up <thanks>",
            "<please> take the call from {contact}",
        ),
        "end_call": (
            "<please> hang up <thanks>",
            "<please> end the call with {contact}",
        ),
    },
    slots=values.SLOTS
    | {
        "contact": (
            "<first>",
            "<first> <last>",
            "my <relation>",
            "mister <last>",
            "<first> from <group>",
            "my <relation> <first>",
            "doctor <last>",
            "<first> in <town>",
        ),
        "phone_number": (
            "555 <four_digits>",
            "<area_code> 555 <four_digits>",
            "one <area_code> 555 <four_digits>",
        ),
        "message": (
            "<opening>",
            "<opening> <addition>",
            "<topic> is fine",
            "<opening> and <opening>",
            "ask <first> about <topic>",
            "<first> wants <topic> <addition>",
        ),
        "topic": ("<topic>", "<adjective> <noun>", "<first> and <topic>"),
        "device": ("<device>",),
        "service": ("<service>",),
        "label": ("<label>",),
        "group": ("<group>", "the <group>"),
        "folder": ("<folder>",),
        "town": ("<town>",),
        "ringtone": ("<tone>", "<adjective> <noun>"),
    },
    phrases=values.PHRASES,
    lists=values.LISTS
    | {
        "topic": TOPICS,
        "opening": OPENINGS,
        "addition": ADDITIONS,
        "device": DEVICES,
        "service": SERVICES,
        "label": LABELS,
        "group": GROUPS,
        "folder": FOLDERS,
        "tone": TONES,
    },
)
