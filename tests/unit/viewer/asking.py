"""Clients of the viewer: Flask's, and a small browser over real sockets with cookies."""

import io
import json
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

import numpy as np
from flask.testing import FlaskClient
from PIL import Image

from panther.errors import InputError
from panther.viewer.contents import Contents, find_contents
from panther.viewer.guard import Guard
from panther.viewer.server import make_app
from panther.viewer.workbench import Workbench


def entered(place: Path | Contents | Workbench) -> FlaskClient:
    """A client with the cookie, for a folder, its contents or a workbench over them."""
    contents = find_contents(place) if isinstance(place, Path) else place
    guard = Guard()
    client = make_app(contents if isinstance(contents, Workbench) else Workbench(contents), guard).test_client()
    assert client.get(f"/?token={guard.token}").status_code == 200
    return client


def picture(client: FlaskClient, address: str, mode: str = "RGBA") -> np.ndarray:
    """Pixels (h, w, channels) of a picture that a route returns."""
    answer = client.get(address)
    assert answer.status_code == 200, answer.get_json()
    with Image.open(io.BytesIO(answer.data)) as image:
        return np.asarray(image.convert(mode))


class Answer(NamedTuple):
    status: int
    content: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Browser:
    """Keeps cookies as a browser does: where no path is set, for the folder of the address."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.jar))

    def get(self, address: str, **headers: str) -> Answer:
        return self._ask(Request(address, headers=headers))

    def post(self, address: str, value: Any) -> Answer:
        parts = urlsplit(address)
        headers = {"Content-Type": "application/json", "Origin": f"{parts.scheme}://{parts.netloc}"}
        return self._ask(Request(address, json.dumps(value).encode(), headers))

    def _ask(self, request: Request) -> Answer:
        try:
            with self._opener.open(request, timeout=60) as response:
                return Answer(response.status, response.read(), response.headers)
        except HTTPError as error:
            with error:
                return Answer(error.code, error.read(), error.headers)


def notes_of(bench: Workbench, name: str) -> str:
    """Notes of a slide's page, or why it cannot be opened."""
    try:
        return " ".join(bench.patches(name).notes)
    except InputError as error:
        return str(error)
