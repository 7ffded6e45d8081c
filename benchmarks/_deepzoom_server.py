"""OpenSlide's DeepZoom generator behind the same web server as the viewer's tiles: `_deepzoom_server.py SLIDE` prints its address."""

import io
import socket
import sys

from flask import Flask, Response
from openslide import OpenSlide
from openslide.deepzoom import DeepZoomGenerator
from waitress.server import create_server

from panther.viewer.patches import TILE, Pyramid
from panther.viewer.serve import THREADS
from panther.viewer.tiles.render import QUALITY


def main() -> None:
    slide = OpenSlide(sys.argv[1])
    found = DeepZoomGenerator(slide, TILE, overlap=0)
    more = found.level_count - Pyramid(*slide.dimensions).zooms  # it has levels of a few pixels, too
    app = Flask("deepzoom", static_folder=None)

    @app.get("/<int:zoom>/<int:x>/<int:y>.jpg")
    def tile(zoom: int, x: int, y: int) -> Response:
        buffer = io.BytesIO()
        found.get_tile(more + zoom, (x, y)).save(buffer, "jpeg", quality=QUALITY)
        return Response(buffer.getvalue(), mimetype="image/jpeg")

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
    create_server(app, sockets=[listening], threads=THREADS).run()


if __name__ == "__main__":
    main()
