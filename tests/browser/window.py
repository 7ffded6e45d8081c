"""A window of the browser, and what tests read from the slide that it shows."""

from collections.abc import Callable
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

# in one selector: a picture can be complete before the page begins to load patches
BUSY = "[aria-busy=true], .deepzoom[data-busy]:visible, progress"
SETTLED = "html:not(:has([aria-busy=true])) .deepzoom:not([data-busy])"


def new_profile(browser: Any) -> Any:
    """A browser without cookies and without animations."""
    return browser.new_context(viewport={"width": 1100, "height": 700}, reduced_motion="reduce")


class Window:
    """One window of a profile. Its ``complaints`` are errors, and requests to other servers."""

    def __init__(self, profile: Any, address: str) -> None:
        self.address = address
        self.page = profile.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._check_request(request.url))
        self._requests: set[Any] = set()  # under way
        self.page.on("request", lambda request: self._requests.add(request))
        self.page.on("requestfinished", lambda request: self._requests.discard(request))
        self.page.on("requestfailed", lambda request: self._requests.discard(request))

    def _check_message(self, message: Any) -> None:
        if message.type == "error":  # the browser warns of the reading of pixels in these tests
            self.complaints.append(message.text)

    def _check_request(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")) and urlsplit(url).netloc != urlsplit(self.address).netloc:
            self.complaints.append(f"request to {url}")

    def open(self, state: str = "", sides: int = 1) -> None:
        """Open a state with the token; wait until all tiles are there."""
        self.page.goto(f"{self.address}#{state}")
        self.settle(sides)

    def settle(self, sides: int = 1) -> None:
        """Wait until nothing is under way."""
        self.page.wait_for_selector("#bar nav")
        self.page.wait_for_selector(f"{SETTLED} >> nth={sides - 1}")

    def until(self, is_true: Callable[[], Any]) -> None:
        """Wait for what a test asserts: the page may show it some frames after a click, a key or an answer."""
        for _ in range(400):
            if is_true():
                return
            self.page.wait_for_timeout(25)
        assert is_true()

    def complete(self) -> None:
        """Wait until all of the page is there: for a while no request was under way and nothing was being computed."""
        quiet = 0

        def is_complete() -> bool:
            nonlocal quiet
            quiet = 0 if self._requests or self.page.locator(BUSY).count() else quiet + 1
            return quiet > 10

        self.page.wait_for_selector("#bar nav")
        self.until(is_complete)

    def state(self) -> dict[str, str]:
        """State in the address."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.page.url).fragment).items()}

    def wait_for_state(self, **expected: str) -> None:
        """Wait until the address has these values."""
        for name, value in expected.items():
            self.page.wait_for_url(lambda url, n=name, v=value: parse_qs(urlsplit(url).fragment).get(n) == [v])

    def views(self) -> list[tuple[float, float, float]]:
        """Middle and zoom of every canvas."""
        return [
            tuple(float(part) for part in text.split())
            for text in self.page.eval_on_selector_all(".deepzoom", "nodes => nodes.map((node) => node.dataset.view)")
        ]

    def spot(self, x: float, y: float, side: int = 0) -> tuple[float, float]:
        """Place in the window of a place on the slide."""
        box = self.page.locator(".deepzoom").nth(side).bounding_box()
        middle_x, middle_y, zoom = self.views()[side]
        left, top = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        return left + (x - middle_x) * zoom, top + (y - middle_y) * zoom

    def colour(self, x: float, y: float, side: int = 0) -> list[int]:
        """Colour that the canvas shows at a place of the slide."""
        left, top = self.spot(x, y, side)
        return self.page.evaluate(
            """([left, top, side]) => {
                const canvas = document.querySelectorAll(".deepzoom")[side].querySelector("canvas");
                const box = canvas.getBoundingClientRect();
                const pixel = canvas.getContext("2d").getImageData(Math.round(left - box.left), Math.round(top - box.top), 1, 1);
                return [...pixel.data].slice(0, 3);
            }""",
            [left, top, side],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()
