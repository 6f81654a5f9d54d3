"""Certificates, keys and kubeconfig files of a control plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubernetes.tools import run, write_json

DAYS = "2"


class Keys:
    """A folder with an authority `ca.crt`, the API server's key pair, a key pair for service accounts, and logins."""

    def __init__(self, folder: Path, server: str, names: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._server = server
        self._tokens: list[str] = []
        self._make_authority()
        self._make_server(names)
        run("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
        run("openssl", "rsa", "-in", folder / "accounts.key", "-pubout", "-out", folder / "accounts.pub")

    def _make_authority(self) -> None:
        files = ("-keyout", self.folder / "ca.key", "-out", self.folder / "ca.crt")
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", "/CN=check", *files)

    def _make_server(self, names: Sequence[str]) -> None:
        kinds = ("IP" if name[0].isdigit() else "DNS" for name in names)
        extension = self.folder / "names.txt"
        alternatives = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names, strict=True))
        extension.write_text(f"subjectAltName={alternatives}\n")
        request = self.folder / "server.csr"
        key = self.folder / "server.key"
        run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server", "-keyout", key, "-out", request)
        signer = ("-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key", "-CAcreateserial")
        result = ("-extfile", extension, "-out", self.folder / "server.crt")
        run("openssl", "x509", "-req", "-in", request, "-days", DAYS, *signer, *result)

    @property
    def tokens(self) -> Path:
        """File of the static tokens, as the API server reads it."""
        return self.folder / "tokens.csv"

    def login(self, user: str, group: str) -> Path:
        """Add a user and return its kubeconfig."""
        token = f"token-{len(self._tokens)}"
        self._tokens.append(f'{token},{user},{len(self._tokens)},"{group}"\n')
        self.tokens.write_text("".join(self._tokens))
        cluster = {"server": self._server, "certificate-authority": str(self.folder / "ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "check", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "check", "context": {"cluster": "check", "user": user}}],
            "current-context": "check",
        }
        return write_json(self.folder / f"{user.replace(':', '-')}.json", config)
