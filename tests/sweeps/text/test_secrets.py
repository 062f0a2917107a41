"""No password or token of an address is shown or stored, whatever part of it it stands in."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweeps.text.secrets import redacted
from tests.conftest import Command
from tests.support.synthetic import sweep_of

# Letters that stand nowhere else in an address, and all that ends a part of one.
LETTERS = "αβγδ"
SECRETS = st.text(st.sampled_from(LETTERS + "@:/?#&=%+;,$'\"[]~"), min_size=4, max_size=12).filter(
    lambda text: any(letter in text for letter in LETTERS)
)
SCHEMES = st.sampled_from(["postgresql", "postgresql+psycopg", "mysql+pymysql", "mssql+pyodbc", "http", "https", "ray"])
OPTIONS = st.sampled_from(["password", "token", "sslpassword", "options", "odbc_connect", "api_key", "x"])
WRITTEN = st.sampled_from([str, quote, quote_plus, lambda text: quote(text, safe="")])
PLACES = (
    "{scheme}://me:{secret}@host:1/db?mode=ro",
    "{scheme}://me@host/db?{option}={secret}",
    "{scheme}://h?{secret}",
)
ANYWHERE = st.sampled_from(
    (
        *PLACES,
        "{scheme}://:{secret}@host",
        "{scheme}://me:{secret}@host/db?{option}={secret}&mode=ro",
        "{scheme}:///db?mode=ro&{option}={secret}&user=me",
        "{scheme}://host/db;token={secret}",
        "{scheme}://host/db?{option}={secret}#{secret}",
    )
)


def shows(text: str) -> set[str]:
    """The secret's letters in `text`, also those that are encoded."""
    return set(unquote(text)) & set(LETTERS)


@given(SCHEMES, ANYWHERE, SECRETS, OPTIONS, WRITTEN)
@example("postgresql", PLACES[0], "α@β", "x", str)
@example("postgresql", PLACES[0], "α/β?γ@δ", "x", str)
@example("https", PLACES[1], "α#/β", "x", str)
@example("https", PLACES[1], "α&β=γ", "token", str)
@example("http", PLACES[0], ":::α", "x", str)
@example("http", "{scheme}://host/db;token={secret}", "#/:α", "x", str)
def test_a_secret_is_hidden_wherever_it_stands(
    scheme: str, place: str, secret: str, option: str, written: object
) -> None:
    assert callable(written)
    uri = place.format(scheme=scheme, secret=written(secret), option=option)
    assert not shows(redacted(uri)), redacted(uri)
    assert redacted(redacted(uri)) == redacted(uri)
    assert not shows(redacted(f"tracking-uri = '{uri}': no such host"))
    if set(secret) <= {*LETTERS, *":$'~[]"}:  # of which no driver knows another end
        assert not shows(redacted(f"FATAL: no {secret}, or {written(secret)}, at host", uri))


@given(SECRETS.filter(lambda text: "/" not in text and not text.startswith("#")), WRITTEN)
def test_a_token_in_the_place_of_a_user_is_hidden(secret: str, written: object) -> None:
    assert callable(written)
    assert not shows(redacted(f"https://{written(secret)}@host/path"))
    assert not shows(redacted(f"https://{written(secret)}:x-oauth-basic@host/path"))


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////home/me@work/a:b/x.db",
        "sqlite:///runs/mlflow.db?mode=ro&uri=true",
        "http://127.0.0.1:5000",
        "http://[::1]:5000/x",
        "http://host:5000/#/experiments/1/runs/2?workflowType=machine_learning",
        "postgresql://me@host:5432/db?sslmode=require&host=/var/run/x",
        "postgresql://me:$PASSWORD@host/db?password=${PASSWORD}&sslmode=require",
        "databricks://profile",
        "no address: me@host:c?d=e",
    ],
)
def test_what_is_no_secret_stays(uri: str) -> None:
    assert redacted(uri) == uri
    assert redacted(f"of {uri} it is said") == f"of {uri} it is said"


@pytest.mark.slow
@pytest.mark.parametrize(
    "uri", ["https://me:SeCrEt@127.0.0.1:9/x?token=SeCrEt", "mysql://me@127.0.0.1:9/db?password=SeCrEt"]
)
@pytest.mark.parametrize(
    "words",
    [
        "run URI",
        "run quickstart --set search.study=URI",
        "run quickstart --set description=URI --set shadow.corpus.nam=URI",
        "run quickstart --set URI",
        "status URI",
    ],
)
def test_no_mistake_with_one_shows_it(uri: str, words: str, command: Command) -> None:
    code, out, err = command(*words.replace("URI", uri).split())
    assert (code, out) == (2, "")
    assert err
    assert "SeCrEt" not in err


@pytest.mark.slow
def test_no_command_shows_or_keeps_that_of_its_store(tmp_path: Path, command: Command) -> None:
    storage, uri = tmp_path / "runs", "http://me:SeCrEt@127.0.0.1:9/x?token=SeCrEt"
    sweep_of(storage, "base", 2)
    for words in (
        "pick base --output PLACE/picked.yaml",
        "report base --output PLACE/report.html",
        "status base --json",
    ):
        line = words.replace("PLACE", str(tmp_path)).split()
        _, out, err = command(*line, "--storage", str(storage), "--tracking-uri", uri)
        assert "SeCrEt" not in out + err
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or b"SeCrEt" not in file.read_bytes(), file
