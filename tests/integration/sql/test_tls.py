"""The sink connects to a server only if its certificate is what `sink.tls.verify` requires."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.databases import SERVERS, new_database
from integration.sql.encrypted import encrypted
from integration.sql.sql_sink import Sink


@pytest.mark.parametrize("dialect", SERVERS)
def test_connect_to_a_server_requires_the_certificate_that_the_setting_says(
    dialect: str, database_servers: Any, tmp_path: Path
) -> None:
    """The certificate names 127.0.0.1 only. The authority did not sign a certificate with that of the client."""
    database = new_database(dialect, database_servers, tmp_path)
    assert database.server is not None
    with encrypted(database.server, tmp_path) as keys:
        authorities = {"its own": keys.ca, "another": keys.client.certificate}

        def refuses(verify: str, host: str, authority: str) -> bool:
            at = replace(database, url=database.url.replace("127.0.0.1", host))
            sink = Sink(at, tls={"verify": verify, "ca": str(authorities[authority])})
            try:
                sink.database.connect()
            except sink.database.errors as error:
                return "certificate" in str(error)
            return False

        expected = {
            ("full", "127.0.0.1", "its own"): False,
            ("full", "localhost", "its own"): True,
            ("full", "127.0.0.1", "another"): True,
            ("ca", "localhost", "its own"): False,
            ("ca", "127.0.0.1", "another"): True,
            ("none", "localhost", "another"): False,
        }
        assert {case: refuses(*case) for case in expected} == expected
