"""The generated corpus `health`: medicines, symptoms, appointments and records.

Drugs are syllables put together; that some of them are real drugs is chance, and nothing here is medical
advice.
"""

from __future__ import annotations

from trainables.corpora import values
from trainables.corpora.grammar import Grammar

DRUGS = values.joined(
    "zel abi corva dexo fluma gabri hexa ilo keto lora meti nolva opri pera quina rami sita tora urso vela xeno brexi",
    "stat pril mab zole cillin olol sartan dipine zepam vir micin prazole triptan gliptin parin oxetine lukast",
)
SYMPTOMS = values.entries(
    "headache|cough|fever|sore throat|back pain|nausea|rash|runny nose|dizziness|chest pain|"
    "stomach ache|toothache|insomnia|heartburn|fatigue|chills|itching|cramps|blurred vision|swelling|"
    "numbness|earache|joint pain|shortness of breath|hiccups|dry mouth|night sweats|"
    "ringing in the ears|stiff neck|loss of appetite"
)
QUALITIES = values.words("bad mild terrible sharp dull constant sudden strange slight throbbing burning recurring")
BODY_PARTS = values.entries(
    "knee|shoulder|back|head|neck|left arm|right foot|stomach|chest|hip|wrist|left eye|ankle|elbow|"
    "jaw|right ear|lower back|throat|thumb|left heel|scalp|shin|tongue|ribs"
)
CONDITIONS = values.entries(
    "asthma|diabetes|high blood pressure|arthritis|migraine|the flu|allergies|anemia|eczema|a cold|"
    "pneumonia|depression|gout|a concussion|glaucoma|bronchitis|measles|shingles|sciatica|psoriasis|"
    "angina|hay fever|sleep apnea|a hernia|tennis elbow|kidney stones|vertigo|celiac disease"
)
SPECIALTIES = values.entries(
    "doctor|dentist|cardiologist|dermatologist|physical therapist|eye doctor|pediatrician|"
    "neurologist|surgeon|allergist|nutritionist|psychiatrist|urologist|midwife|podiatrist|oncologist|"
    "radiologist|nurse"
)
FORMS = (
    "pills",
    "tablets",
    "drops",
    "capsules",
    "puffs",
    "patches",
    "injections",
    "teaspoons",
    "lozenges",
    "sachets",
)
STRENGTHS = tuple(
    f"{amount} {unit}"
    for unit in ("milligrams", "mg", "micrograms", "milliliters")
    for amount in (10, 20, 50, 5, 100, 25, 200, 40, 500, 250, 80, 15, 75, 400, 150, 30, 600, 12, 35, 1000)
)
FREQUENCIES = values.entries(
    "twice a day|every day|every morning|at bedtime|every six hours|with food|once a week|"
    "every other day|three times a day|after meals|before breakfast|as needed|every eight hours|"
    "on an empty stomach|monthly"
)
MEASURES = values.entries(
    "blood pressure|weight|heart rate|blood sugar|temperature|oxygen level|steps|cholesterol|"
    "sleep score|waist|water intake|calories|resting pulse|body fat"
)
FOODS = values.joined(
    "grilled raw fried boiled smoked cold spicy sweet plain dried",
    "chicken eggs rice salad oatmeal salmon beans apples bread soup peanuts cheese noodles yogurt shrimp tofu",
    " ",
)
EXERCISES = values.entries(
    "running|yoga|swimming|walking|cycling|weights|stretching|pilates|rowing|hiking|dancing|climbing|"
    "tennis|boxing|jumping rope|gardening"
)
TESTS = values.entries(
    "blood test|x ray|scan|allergy test|eye exam|stress test|biopsy|ultrasound|hearing test|"
    "urine test|sleep study|bone scan|skin test|throat swab|lung test"
)
VACCINES = (
    "flu shot",
    "tetanus shot",
    "booster",
    "measles vaccine",
    "shingles shot",
    "travel vaccine",
    "rabies shot",
)
CLINICS = values.joined(
    "riverside lakeview hillcrest maplewood northgate sunrise cedar harborview stonebridge meadow",
    "clinic hospital pharmacy practice center",
    " ",
)
INSURERS = values.joined("silver maple first true green willow", "shield health care cross mutual", " ")

GRAMMAR = Grammar(
    name="health",
    intents={
        "set_medication_reminder": (
            "<please> remind me to take {drug} <when>",
            "<please> remind me to take {dosage} of {drug} {frequency}",
            "<please> set a reminder for {drug} {frequency} <thanks>",
            "<please> tell me when it is time for my {drug} {frequency}",
            "i have to take {dosage} of {drug} {frequency} for {duration}",
            "<please> do not let me forget {drug} {date}",
        ),
        "report_symptom": (
            "i have a {symptom} <thanks>",
            "my {body_part} hurts since {date}",
            "i have had {symptom} for {duration}",
            "there is a {symptom} in my {body_part}",
            "{symptom} and {symptom} since {date}",
            "<please> note that my {body_part} hurts after {exercise}",
            "{person} has a {symptom} in the {body_part} for {duration}",
        ),
        "book_appointment": (
            "<please> book an appointment with {provider} <when>",
            "<please> make an appointment at {clinic} <when>",
            "i need to see {provider} about my {body_part} <when>",
            "<please> get me in with {provider} for {symptom} {date}",
            "<please> schedule {person} with {provider} <when>",
        ),
        "log_medication": (
            "i took {dosage} of {drug} <thanks>",
            "i just took my {drug}",
            "<please> log {dosage} of {drug} at {time}",
            "{person} took {drug} at {time} {date}",
            "<please> write down that i had {drug} {date}",
        ),
        "refill_prescription": (
            "<please> refill my {drug} <thanks>",
            "<please> order more {drug} from {clinic}",
            "i am out of {drug} <thanks>",
            "<please> renew the prescription for {drug} {strength}",
            "<please> ask {provider} for more {drug}",
        ),
        "drug_information": (
            "what are the side effects of {drug}",
            "can i take {drug} with {drug}",
            "is {drug} safe for {condition}",
            "how much {drug} can {person} take",
            "can i drink alcohol with {drug} {strength}",
            "does {drug} cause {symptom}",
        ),
        "log_measurement": (
            "<please> record my {measure} as {value}",
            "my {measure} was {value} {date}",
            "<please> log {value} for {measure} <thanks>",
            "the {measure} of {person} is {value} at {time}",
        ),
        "symptom_advice": (
            "what helps with a {symptom}",
            "what should i do about {symptom} in my {body_part}",
            "could a {symptom} be {condition}",
            "should i see {provider} for {symptom}",
            "why does my {body_part} hurt after {exercise}",
        ),
        "log_meal": (
            "i ate {food} at {time}",
            "<please> log {food} and {food} for {date}",
            "i had {food} with {food} <thanks>",
            "{person} ate {food} {date}",
        ),
        "log_exercise": (
            "i did {duration} of {exercise} {date}",
            "<please> log {exercise} for {duration} <thanks>",
            "<please> add {duration} of {exercise} at {time}",
        ),
        "find_provider": (
            "<please> find {provider} near {town}",
            "which {provider} in {town} takes {insurer}",
            "is there a {clinic} in {town} <thanks>",
            "who treats {condition} around {town}",
        ),
        "cancel_appointment": (
            "<please> cancel my appointment with {provider} <when>",
            "i cannot come to {clinic} {date}",
            "<please> call off {provider} {date} <thanks>",
        ),
        "check_measurement": (
            "what was my {measure} {date}",
            "how is my {measure} <thanks>",
            "<please> show the {measure} of {person} since {date}",
        ),
        "move_appointment": (
            "<please> move my appointment with {provider} to {date}",
            "can i see {provider} at {time} instead of {time}",
            "<please> push {clinic} back by {duration}",
        ),
        "check_schedule": (
            "when do i take {drug} next",
            "did i take my {drug} {date}",
            "when is my appointment with {provider}",
            "did {person} take {drug} at {time}",
        ),
        "test_results": (
            "are the results of my {test} there",
            "<please> read the {test} of {person} from {date}",
            "did {clinic} send the {test} <thanks>",
        ),
        "add_allergy": (
            "i am allergic to {food}",
            "<please> add {drug} to my allergies",
            "{person} gets a {symptom} from {food}",
        ),
        "insurance_question": (
            "does {insurer} cover {drug}",
            "does {insurer} pay for a {test} at {clinic}",
            "<please> tell {clinic} that i have {insurer}",
        ),
        "book_vaccination": (
            "<please> book a {vaccine} at {clinic} {date}",
            "when does {person} need the {vaccine}",
            "is the {vaccine} safe with {condition}",
        ),
        "stop_medication": (
            "<please> stop the reminder for {drug}",
            "{provider} took me off {drug} {date}",
            "i no longer take {drug} <thanks>",
        ),
        "call_emergency": (
            "<please> get help {person} has {symptom}",
            "<please> call an ambulance to {town} <thanks>",
            "i think {person} is having {condition} call someone",
        ),
        "sleep_log": (
            "i slept {duration} {date}",
            "<please> log that i slept from {time} to {time}",
            "i woke up at {time} with a {symptom}",
        ),
    },
    slots=values.SLOTS
    | {
        "drug": ("<drug>", "<drug> <strength>", "<drug> plus", "<adjective> <noun> balm", "<drug> <form>"),
        "dosage": (
            "<number> <form>",
            "<strength>",
            "one of the <form>",
            "half a dose",
            "<number> <strength> <form>",
        ),
        "strength": ("<strength>",),
        "frequency": ("<frequency>", "<frequency> and <frequency>", "on <weekday> and <weekday>"),
        "symptom": ("<symptom>", "<quality> <symptom>"),
        "body_part": ("<body_part>",),
        "condition": ("<condition>", "<quality> <condition>"),
        "provider": (
            "doctor <last>",
            "my <specialty>",
            "<first> <last>",
            "a <specialty>",
            "<specialty> <last>",
        ),
        "clinic": ("<clinic>", "<clinic> in <town>", "the <town> <clinic>"),
        "person": ("my <relation>", "<first>", "my <relation> <first>", "<first> <last>"),
        "measure": ("<measure>",),
        "value": ("<four_digits>", "<number>", "<hour> <minute>", "<area_code>", "<area_code> over <number>"),
        "food": ("<food>", "<number> <food>", "<food> from <first> 's"),
        "exercise": ("<exercise>", "<quality> <exercise>"),
        "test": ("<test>", "<body_part> <test>"),
        "vaccine": ("<vaccine>",),
        "insurer": ("<insurer>", "<insurer> of <town>"),
        "town": ("<town>",),
    },
    phrases=values.PHRASES,
    lists=values.LISTS
    | {
        "drug": DRUGS,
        "strength": STRENGTHS,
        "form": FORMS,
        "frequency": FREQUENCIES,
        "symptom": SYMPTOMS,
        "quality": QUALITIES,
        "body_part": BODY_PARTS,
        "condition": CONDITIONS,
        "specialty": SPECIALTIES,
        "clinic": CLINICS,
        "measure": MEASURES,
        "food": FOODS,
        "exercise": EXERCISES,
        "test": TESTS,
        "vaccine": VACCINES,
        "insurer": INSURERS,
    },
)
